package joblease

import "time"

// takeover is what a candidate remembers of the row it waits for, and the rules
// by which it may replace another's claim. They hold without trust in any single
// clock: not the holder's, not the candidate's, and, but for one case, not the
// database's.
//
// A holder trusts its lease until (the send of its last renewal) + TTL - Margin
// on its own monotonic clock. So a candidate that has seen the row unchanged for
// a whole stored TTL of its own monotonic clock knows that trust is over. It
// needs less than that only when it knows how long before the sighting the row
// was written, and that is what the stored expiry and the database's clock say,
// if that clock ran true since before the write.
//
// The one case: the first look of a Lease trusts the database's clock alone,
// so that a service that is started again after a crash does not wait.
type takeover struct {
	margin time.Duration // of this candidate

	looked bool // some look was answered
	last   look // the last look that was refused

	claim   ClaimID // what stood in the row
	version int64
	ttl     time.Duration // stored with it
	since   time.Time     // local: the answer in which this claim and version were first seen
	free    time.Time     // local: from here on it may be taken if the database says that it is expired
}

// look is one answer: the local instants around it, and what the database said.
type look struct {
	sent, answered time.Time
	clock          time.Time     // the database's
	remaining      time.Duration // of the lease, on the database's clock
}

// condition is what an acquire sent now may replace.
func (t *takeover) condition(now time.Time) Takeover {
	switch {
	case !t.looked:
		return Takeover{Rule: TakeExpired}
	case t.since.IsZero() || t.claim.IsZero():
		return Takeover{Rule: TakeNever}
	case !now.Before(t.since.Add(t.ttl + t.margin)):
		return Takeover{Rule: TakeSighted, Claim: t.claim, Version: t.version}
	case !now.Before(t.free):
		return Takeover{Rule: TakeSightedExpired, Claim: t.claim, Version: t.version}
	}
	return Takeover{Rule: TakeNever}
}

// granted notes that an acquire succeeded. Whatever was sighted is history.
func (t *takeover) granted() {
	*t = takeover{margin: t.margin, looked: true}
}

// refused notes a sighting of the row.
func (t *takeover) refused(h *HeldError, sent, answered time.Time) {
	l := look{sent: sent, answered: answered, clock: h.Clock, remaining: h.Remaining}
	if t.since.IsZero() || h.Claim != t.claim || h.Version != t.version {
		// An operator may have written a TTL with which instants overflow.
		t.claim, t.version, t.ttl, t.since = h.Claim, h.Version, min(h.TTL, MaxTTL), answered
		// The row was written between the look before and this one. The wait
		// counts from the answer: the write came no later.
		wait := t.ttl
		if h.Remaining < wait && t.ranTrue(l) {
			wait = h.Remaining
		}
		t.free = answered.Add(wait)
	}
	t.looked, t.last = true, l
}

// ranTrue reports whether the database's clock advanced, since the look before
// l, by what the local monotonic clock allows. A step that hides in the
// uncertainty of the two round trips is shorter than the margin.
func (t *takeover) ranTrue(l look) bool {
	p := t.last
	if p.clock.IsZero() {
		return false
	}
	elapsed := l.answered.Sub(p.sent)
	// Two honest clocks drift apart by up to 500 ppm while NTP slews them
	// (ntpd's limit), twice that between two of them; some databases tell
	// milliseconds only.
	slack := elapsed/1000 + time.Millisecond
	if p.answered.Sub(p.sent)+l.answered.Sub(l.sent)+2*slack >= t.margin {
		return false
	}
	advance := l.clock.Sub(p.clock)
	return advance >= l.sent.Sub(p.answered)-slack && advance <= elapsed+slack
}

// next returns how long a candidate sleeps, after a refusal, until the instant
// at which a look can win; zero or less if one could win at once, but for a lock
// on the row or a rival.
func (t *takeover) next(now time.Time) time.Duration {
	if t.claim.IsZero() {
		return 0
	}
	if d := t.free.Sub(now); d > 0 {
		return d
	}
	// The wait is over and the database said that the lease has not expired.
	// Either its clock was stepped back, or it runs a little slower.
	expired := t.last.answered.Add(t.last.remaining)
	if sure := t.since.Add(t.ttl + t.margin); sure.Before(expired) {
		expired = sure
	}
	return expired.Sub(now)
}
