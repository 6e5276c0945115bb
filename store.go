package joblease

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"time"
)

// Store keeps leases in a database, one row per name. Each method is one
// atomic statement and one round trip.
//
// The contract, which the suite in package storetest checks:
//
//   - Every method returns soon after its context has ended, whatever the
//     database is doing, and is safe for concurrent use.
//   - An error that is neither [ErrHeld] nor [ErrLost] means that the outcome is
//     unknown: the statement may or may not have taken effect.
//   - Instants in a row are on the database's clock. No method compares a stored
//     instant with any other clock.
//   - Every write stores g.TTL or c.TTL, the instant of the write as RenewedAt,
//     and RenewedAt + TTL as ExpiresAt: a standby goes by what is stored.
//   - No method deletes a row.
type Store interface {
	// Acquire takes the lease for c, or refuses with a *[HeldError].
	//
	// It takes the lease if there is no row of that name, if the row is
	// released, if c.ID already holds it, or if c.Takeover allows replacing
	// another claim. A row that is locked by a transaction, as a fence locks it,
	// is refused at once, without waiting, where the database has row locks; the
	// refusal may then carry c.ID itself. A claim that c.ID already holds keeps
	// its token and is extended; every other success raises the token by exactly
	// one, and the token of a new row is 1. The lease expires one c.TTL after
	// the instant of the write on the database's clock, and the grant that comes
	// back has not expired at the instant at which the database answered.
	//
	// If c.Tick names a tick, it must also have come, and be later than the last
	// tick in the row, or, with Again, be that one and unfinished; otherwise the
	// refusal is a *[TickError], whoever holds the lease. The tick is stored,
	// unfinished, with the claim. c.ID that already holds the lease keeps its tick,
	// and gets it back. A claim without a tick leaves the stored one alone.
	//
	// A refusal writes nothing. A name that [CheckName] refuses, a tick that
	// [CheckTick] refuses, a zero ID and a TTL that is not positive are errors,
	// neither ErrHeld nor ErrLost.
	Acquire(ctx context.Context, c Claim) (Grant, error)

	// Renew extends the lease to one g.TTL from now on the database's clock if
	// g.Claim still holds it, also when it has expired and nobody has taken it.
	// Otherwise the error is [ErrLost] and nothing is written.
	Renew(ctx context.Context, g Grant) error

	// Release frees the lease if g.Claim still holds it. Otherwise the error is
	// [ErrLost] and nothing is written. The row and its token stay, and so does
	// its tick, which becomes finished if it is g.Tick and g.Finished is true.
	Release(ctx context.Context, g Grant) error

	// List returns the rows in the order of their names, for a person to read.
	List(ctx context.Context) ([]Record, error)
}

// Watcher is a [Store] that can tell waiting candidates about a release. It is
// only ever a hint: a candidate that hears nothing still takes over in time. A
// type that wraps a Store hides this unless it passes Watch on.
type Watcher interface {
	// Watch begins to listen for releases of the lease name. It does no I/O and
	// does not block. The caller calls Stop when it is done.
	Watch(name string) Watch
}

// Watch is one candidate's subscription to the releases of one lease.
type Watch struct {
	// Wake receives a value when the lease may have been released, and when the
	// result of Live has changed. Values that nobody receives are merged.
	Wake <-chan struct{}
	// Live reports whether a release would be told. While it is false a
	// candidate looks once per RenewEvery. It never blocks.
	Live func() bool
	// Stop ends the subscription. It never blocks, and calling it again does
	// nothing.
	Stop func()
}

// ClaimID identifies one acquisition. It is random, 128 bits, and the only thing
// by which renew, release and the fence tell whose lease it is.
type ClaimID [16]byte

// NewClaimID returns a random identity.
func NewClaimID() ClaimID {
	var id ClaimID
	rand.Read(id[:]) // never returns an error: it ends the process instead
	return id
}

// IsZero reports whether id is the identity of no claim.
func (id ClaimID) IsZero() bool { return id == ClaimID{} }

// String returns the identity in hexadecimal, 32 digits.
func (id ClaimID) String() string { return hex.EncodeToString(id[:]) }

// Claim is a request for a lease.
type Claim struct {
	// Name of the lease: 1 to 255 bytes of UTF-8 without a zero byte.
	Name string
	// ID of this acquisition. The same claim sent again is the same acquisition.
	ID ClaimID
	// Holder is a label for people. It never decides anything.
	Holder string
	// TTL is how long the lease lasts from the write, on the database's clock.
	TTL time.Duration
	// Takeover says whether a lease of another claim may be replaced.
	Takeover Takeover
	// Tick, unless it is zero, makes this the claim of one tick of a job.
	Tick Tick
}

// Takeover is the condition under which an acquire may replace the claim of
// another. The zero value never replaces one.
type Takeover struct {
	Rule TakeoverRule
	// Claim and Version are the row as the candidate last saw it, for the rules
	// that name them.
	Claim   ClaimID
	Version int64
}

// TakeoverRule names the conditions that a [Takeover] can state.
type TakeoverRule uint8

const (
	// TakeNever replaces no claim of another: only a released or absent row is taken.
	TakeNever TakeoverRule = iota
	// TakeExpired replaces any claim that has expired on the database's clock.
	TakeExpired
	// TakeSightedExpired replaces the claim if Takeover.Claim and
	// Takeover.Version are still what stands there and it has expired on the
	// database's clock.
	TakeSightedExpired
	// TakeSighted replaces the claim if Takeover.Claim and Takeover.Version are
	// still what stands there, whatever the database's clock says.
	TakeSighted
)

// String returns the rule's name.
func (r TakeoverRule) String() string {
	switch r {
	case TakeNever:
		return "never"
	case TakeExpired:
		return "expired"
	case TakeSightedExpired:
		return "sighted and expired"
	case TakeSighted:
		return "sighted"
	}
	return fmt.Sprintf("TakeoverRule(%d)", uint8(r))
}

// Grant is a lease as the database granted it.
type Grant struct {
	Name   string
	Claim  ClaimID
	Holder string
	// Token is the fencing token: it grows by one at each change of hands and is
	// never reset while the row lives. A sink that compares tokens refuses
	// writes of a holder that has been replaced.
	Token int64
	// TTL is the duration that each renewal asks for.
	TTL time.Duration
	// AcquiredAt and ExpiresAt are on the database's clock, as of the acquire.
	// Renewals move the expiry in the database, not here.
	AcquiredAt, ExpiresAt time.Time
	// Tick is the tick that was claimed, in UTC and whole microseconds; zero if
	// the claim named none.
	Tick time.Time
	// Finished tells a release that the run of Tick is over, whatever came of
	// it. The holder sets it. Without a Tick it says nothing.
	Finished bool
}

// Record is one row, for people and for tools that show the state of things.
type Record struct {
	Name string
	// Holder is the label of who has the lease, empty when it is released.
	Holder string
	// Claim is zero when the lease is released.
	Claim   ClaimID
	Token   int64
	Version int64
	TTL     time.Duration
	// AcquiredAt, RenewedAt and ExpiresAt are on the database's clock.
	AcquiredAt, RenewedAt, ExpiresAt time.Time
	// Remaining is what was left of the lease at the instant of the answer, on
	// the database's clock. It is zero or less when the lease has expired.
	Remaining time.Duration
	// Tick is the last tick that was claimed, in UTC; zero if none ever was.
	Tick time.Time
	// TickDone says that the run of that tick has finished. True if there is none.
	TickDone bool
}

// Held reports whether a claim held the lease at the instant of the answer, by
// the database's clock.
func (r Record) Held() bool { return !r.Claim.IsZero() && r.Remaining > 0 }
