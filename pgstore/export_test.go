package pgstore

import "time"

// ImpatientListener makes s find out sooner that nothing reaches its listening
// connection. It is called before the first Watch.
func ImpatientListener(s *Store, quiet, proof time.Duration) {
	s.listener.quiet, s.listener.proof = quiet, proof
}
