// Package storetest is the conformance suite that a [joblease.Store] must pass,
// and [Memory], a store in memory for tests.
//
// A store runs the suite from a test of its own:
//
//	func TestStore(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) storetest.Backend {
//			db := newDatabase(t) // with an empty lease table
//			return storetest.Backend{
//				Open:   func() joblease.Store { return newStore(t, db) },
//				Delete: func(name string) { db.mustExec("DELETE …", name) },
//				…
//			}
//		})
//	}
//
// Where the contract leaves a store free, the suite does too: an error that is
// neither [joblease.ErrHeld] nor [joblease.ErrLost] is accepted wherever the
// outcome may be unknown, and nowhere else.
package storetest

import (
	"testing"
	"time"

	"github.com/joblease/joblease"
)

// Backend is an empty lease table and what the suite does to it. Hooks that
// fail end the test themselves: they are called on the test's goroutine only.
// A check that needs a hook that is nil is skipped.
type Backend struct {
	// Open returns another handle on the table, as another replica has, with
	// connections of its own where the database has any. The suite opens a few
	// per check and uses them concurrently. Open arranges for them to be closed
	// at the end of the test. It must not be nil.
	Open func() joblease.Store

	// Elsewhere returns stores on other tables, one for each way in which the
	// database keeps tables apart: of another name, in another schema, in
	// another database. All are empty and stay apart from the table of Open.
	Elsewhere func() []joblease.Store

	// Advance lets d pass on the database's clock by stepping it. Nil if the
	// clock cannot be stepped; then the suite waits, for instants at most a
	// second away.
	Advance func(d time.Duration)

	// Delete deletes the row of the lease name, as an operator might.
	Delete func(name string)

	// SetToken sets the token of the row of the lease name and changes nothing
	// else in it.
	SetToken func(name string, token int64)

	// Lock locks the row of the lease name in a transaction of another session,
	// exclusively, as SELECT … FOR UPDATE does, and changes nothing. It returns
	// when the row is locked; unlock returns when it is not locked any more. If
	// the test ends without unlock, Lock arranges for the end of the transaction.
	Lock func(name string) (unlock func())

	// LocksTable says that Lock locks more than the row, because the database
	// has no locks on rows. Then an acquire may wait for it as other writes do,
	// and the checks that it does not are skipped.
	LocksTable bool
}

// Run runs the suite, each check as a subtest with a Backend of its own. The
// open function is called once per check with the check's own t. Checks run one
// after the other. A store runs it once for each setting that may make a
// difference, such as an isolation level.
func Run(t *testing.T, open func(t *testing.T) Backend) {
	for _, c := range checks() {
		t.Run(c.name, func(t *testing.T) {
			c.run(newEnv(t, open(t)))
		})
	}
}

// check is one rule of the contract. Its name says what a store does.
type check struct {
	name string
	run  func(e *env)
}

func checks() []check {
	var all []check
	for _, group := range [][]check{
		acquireChecks, takeoverChecks, renewChecks, releaseChecks, refusalChecks, nameChecks,
		raceChecks, lockChecks, limitChecks, endingChecks, watchChecks,
		tickChecks, runChecks, tickLimitChecks, slotChecks,
	} {
		all = append(all, group...)
	}
	return all
}
