//go:build race

package sqlstore_test

// SQLite translated to Go runs some twenty times slower under the race detector,
// and the journal makes no difference to what that looks for.
func init() {
	crowd = 100
	delete(fileModes, rollbackMode)
}
