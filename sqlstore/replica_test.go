package sqlstore_test
const replicaEnv = "JOBLEASE_TEST_REPLICA"
func replica(role string) int { return 0 }
