package joblease

import (
	"context"
	"encoding/json"
	"fmt"
	"time"
)

// State says what a [Supervisor] is doing.
type State uint8

const (
	// Stopped: Run is not running.
	Stopped State = iota
	// Standby: asking for the lease.
	Standby
	// Leading: a term is on. The scheduler runs, or is being stopped.
	Leading
	// Paused: leaving the lease to others for a while, after the scheduler failed
	// or after Resign.
	Paused
)

// String returns the state's name.
func (s State) String() string {
	switch s {
	case Stopped:
		return "stopped"
	case Standby:
		return "standby"
	case Leading:
		return "leading"
	case Paused:
		return "paused"
	}
	return fmt.Sprintf("State(%d)", uint8(s))
}

// MarshalText returns the state's name.
func (s State) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Status is what a [Supervisor] knows, without asking anybody.
type Status struct {
	// Lease is the name of the lease, Replica the label of this replica.
	Lease, Replica string
	State          State
	// Held says whether the lease may be trusted at this instant. State is Leading
	// whenever it is.
	Held bool
	// Token of the term, zero if the lease is not held.
	Token int64
	// TrustedUntil is when trust ends unless a renewal succeeds before, on the
	// local clock, with its monotonic reading. Zero if the lease is not held.
	TrustedUntil time.Time
	// Terms counts the terms since the supervisor was made.
	Terms int64
	// Holder is the label of the replica that held the lease when this one last
	// asked and was refused. Empty if this one holds the lease or never asked.
	Holder string
	// Failures counts the calls to the store that have failed in a row.
	Failures int
	// Err is the error of the last call, nil if the store answered.
	Err error
}

// MarshalJSON writes the fields under their own names, Err as its text.
func (s Status) MarshalJSON() ([]byte, error) {
	type fields Status
	text := ""
	if s.Err != nil {
		text = s.Err.Error()
	}
	return json.Marshal(struct {
		fields
		Err string
	}{fields(s), text})
}

// Status returns what the supervisor knows. It does no I/O and never blocks.
func (s *Supervisor) Status() Status {
	s.mu.Lock()
	st := Status{State: s.state, Terms: s.terms}
	s.mu.Unlock()

	l := s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	st.Lease, st.Replica = l.name, l.cfg.Holder
	st.Failures, st.Err = l.failures, l.lastErr
	// The lease knows first when a term begins and ends: whoever holds, leads.
	if l.work != nil {
		st.State = Leading
	}
	if st.Held = l.work != nil && l.heldNow(); st.Held {
		st.Token, st.TrustedUntil = l.grant.Token, l.trustEnd(l.sent)
	} else if l.refusal != nil {
		st.Holder = l.refusal.Holder
	}
	return st
}

// IsLeader returns nil if this replica leads: it holds the lease, may trust it at
// this instant, and its scheduler has not been told to stop. Otherwise the error
// is [ErrHeld] if another replica held the lease when this one last asked, and any
// other error if it is not known who does. It does no I/O, never blocks and does not look at ctx, which is there so that a
// Supervisor is a gocron.Elector of github.com/go-co-op/gocron/v2.
//
// Who asks before a job begins also wraps the job with [Supervisor.Gate]: the
// term does not wait for a job that it does not know of.
func (s *Supervisor) IsLeader(context.Context) error {
	l := s.lease
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.work != nil && l.work.ctx.Err() == nil && l.heldNow():
		return nil
	case l.held:
		return fmt.Errorf("joblease: lease %q is about to begin or end its term here, or waits to be confirmed", l.name)
	case l.lastErr != nil:
		return fmt.Errorf("joblease: who holds lease %q is not known: %w", l.name, l.lastErr)
	case l.refusal != nil:
		return l.refusal
	case l.lost != nil:
		return l.lost
	}
	return fmt.Errorf("joblease: lease %q has not been asked for yet", l.name)
}

// lastToken is the token of the last term.
func (l *Lease) lastToken() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.grant.Token
}
