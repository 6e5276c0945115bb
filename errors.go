package joblease

import (
	"errors"
	"fmt"
	"time"
)

// A caller has two decisions to make, wait or stop, so there are two sentinels.
// Every other error means that nothing is known: the database did not answer, or
// answered with an error of its own. Test with errors.Is; no error is told by
// its text.
var (
	// ErrHeld means that another claim holds the lease. The error is a
	// *[HeldError], which says who and for how long.
	ErrHeld = errors.New("joblease: held by another")

	// ErrLost means that the lease is not held any more, and that work done
	// under it must stop. From a [Lease] the error is a *[LostError], which says
	// why.
	ErrLost = errors.New("joblease: lease lost")
)

// HeldError is the refusal of an acquire: what stood in the row.
type HeldError struct {
	// Name of the lease.
	Name string
	// Holder is the label of who has the lease. It is empty, and Claim is zero, if
	// the lease is free but a transaction locks or is inserting its row.
	Holder string
	// Token of the lease in force.
	Token int64
	// Claim and Version identify the row's state. Version grows with each write.
	Claim   ClaimID
	Version int64
	// TTL is the duration that the holder asked for.
	TTL time.Duration
	// Remaining is what was left of the lease, on the database's clock. Zero or
	// less means that it has expired there but may not be taken yet: the
	// candidate has not watched it for long enough, or a transaction locks it.
	Remaining time.Duration
	// Clock is the database's clock at the answer.
	Clock time.Time
}

// Error says who holds the lease and for how long.
func (e *HeldError) Error() string {
	switch {
	case e.Claim.IsZero():
		return fmt.Sprintf("joblease: %q is free, but a transaction locks its row", e.Name)
	case e.Remaining <= 0:
		return fmt.Sprintf("joblease: %q is held by %q, expired %v ago but not to be taken yet",
			e.Name, e.Holder, -e.Remaining)
	}
	return fmt.Sprintf("joblease: %q is held by %q for another %v", e.Name, e.Holder, e.Remaining)
}

// Is reports that a HeldError is [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// TickError is the refusal of a tick: it has been claimed already, or it has not
// come yet. It is neither [ErrHeld] nor [ErrLost]: there is nothing to wait for
// but the next tick.
type TickError struct {
	// Name of the job.
	Name string
	// At is the tick that was refused, in UTC and whole microseconds.
	At time.Time
	// Last is the last tick that was claimed, in UTC; zero if none was. At was
	// claimed already unless it is later. Done says that the run of Last has
	// finished; true if there is none.
	Last time.Time
	Done bool
	// Clock is the database's clock by which the tick was judged.
	Clock time.Time
}

// Due reports whether the tick has come, on the database's clock. Also a tick
// that has been claimed may lie ahead: a slot that was claimed early does.
func (e *TickError) Due() bool { return !e.At.After(e.Clock) }

// Error says why the tick was refused.
func (e *TickError) Error() string {
	if e.Last.Before(e.At) {
		return fmt.Sprintf("joblease: the tick of %q at %v has not come: the database's clock shows %v", e.Name, e.At, e.Clock)
	}
	return fmt.Sprintf("joblease: the tick of %q at %v has been claimed; the last one is that of %v", e.Name, e.At, e.Last)
}

// LostError says why a lease is not held any more.
type LostError struct {
	// Name and Token of the lease that was lost.
	Name  string
	Token int64
	// Reason is one of the Lost constants.
	Reason LostReason
	// Err is the error of the last renewal, if trust ended because renewals failed.
	Err error
}

// LostReason says how a lease came to be lost.
type LostReason string

const (
	// LostReplaced: the database says that the row does not carry the claim any
	// more. It was taken over, released by somebody, or deleted.
	LostReplaced LostReason = "the row does not carry this claim any more"
	// LostExpired: no renewal succeeded in time. The lease may still stand in
	// the database for about a Margin, but is not to be trusted.
	LostExpired LostReason = "it could not be renewed in time"
	// LostReleased: the lease was released.
	LostReleased LostReason = "it was released"
	// LostNeverHeld: the lease was not acquired in the first place.
	LostNeverHeld LostReason = "it was never acquired"
	// LostOverrun: the work did not stop within StopTimeout, so the lease was
	// left to expire.
	LostOverrun LostReason = "the work under it did not stop in time"
)

// Error gives the reason.
func (e *LostError) Error() string {
	s := fmt.Sprintf("joblease: lease %q (token %d) lost: %s", e.Name, e.Token, e.Reason)
	switch {
	case e.Err != nil:
		s += ": " + e.Err.Error()
	case e.Reason == LostExpired:
		s += ", though no renewal failed: the process was paused or starved"
	}
	return s
}

// Is reports that a LostError is [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the error of the last renewal, or nil.
func (e *LostError) Unwrap() error { return e.Err }

// ConfigError is what a constructor returns for an argument that cannot work.
type ConfigError struct {
	// Field is the name of the argument or of the [Config] field.
	Field string
	// Value is what it was, after defaults were filled in.
	Value any
	// Rule is what it must satisfy.
	Rule string
}

// Error names the field, its value and the rule.
func (e *ConfigError) Error() string {
	return fmt.Sprintf("joblease: %s is %v: %s", e.Field, e.Value, e.Rule)
}

// SetupError is what a [Store] returns when the database answers but is not set
// up for leases: a missing table, a missing privilege, a read-only server. Nothing
// was written. It heals when the setup is mended; no restart is needed.
type SetupError struct {
	// Problem says what is wrong.
	Problem string
	// Remedy says what to do about it.
	Remedy string
	// Err is the database's own error, if it gave one.
	Err error
}

// Error gives the problem, the remedy and the database's own words.
func (e *SetupError) Error() string {
	s := "joblease: " + e.Problem + "; " + e.Remedy
	if e.Err != nil {
		s += " (" + e.Err.Error() + ")"
	}
	return s
}

// Unwrap returns the database's own error, or nil.
func (e *SetupError) Unwrap() error { return e.Err }

// OverrunError is what [Supervisor.Run] and [Lease.Do] return when the work has
// not stopped within StopTimeout of the shutdown. Renewals have ended, the lease
// was not released, and another replica may take it over after its expiry while
// the work still runs here.
//
// A [Scheduler] returns one when it could not stop what it started: then the
// lease is left to expire as well.
type OverrunError struct {
	// After is how long the work was given.
	After time.Duration
	// Err is the scheduler's own error, if it gave one.
	Err error
}

// Error says what still runs and what follows from it.
func (e *OverrunError) Error() string {
	s := "joblease: work still runs"
	if e.After > 0 {
		s += fmt.Sprintf(" %v", e.After)
	}
	s += " after it was told to stop; its lease was not released and expires by itself"
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap returns the scheduler's own error, or nil.
func (e *OverrunError) Unwrap() error { return e.Err }

// PanicError carries a panic of the caller's work from the goroutine that ran it
// to the one that waits for it, where it goes on as a panic with this value.
type PanicError struct {
	// Value is what was passed to panic.
	Value any
	// Stack is the stack of the goroutine that panicked.
	Stack []byte
}

// Error gives the value and the stack.
func (e *PanicError) Error() string {
	return fmt.Sprintf("joblease: panic in the work under a lease: %v\n\n%s", e.Value, e.Stack)
}

// Unwrap returns the value if it was an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
