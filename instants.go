package joblease

import (
	"fmt"
	"time"
)

// Schedule says at which instants a job is due: Next returns the first one after
// t, and the zero time if there is none. The schedules of the parser in
// github.com/robfig/cron/v3 are such.
//
// The instants must be the same for all replicas, so Next may depend on nothing
// but t: not on when the process started, nor on chance. A schedule that measures
// from t, as that of robfig/cron's "@every 90s" does, has no instants that
// replicas share and is refused; [Interval] is what was meant. Next must be fast,
// and safe for use by several goroutines.
type Schedule interface {
	Next(t time.Time) time.Time
}

// Interval is a [Schedule] with an instant every d, counted from the beginning of
// 1970 in UTC plus offset: Interval(time.Hour, 5*time.Minute) is five minutes past
// each hour. It knows no daylight saving. d must be whole microseconds and at
// least a millisecond.
func Interval(d, offset time.Duration) Schedule {
	switch {
	case d < time.Millisecond || d%time.Microsecond != 0:
		return interval{invalid: &ConfigError{"Interval", d, "must be at least 1ms and whole microseconds, which is what databases keep"}}
	case offset%time.Microsecond != 0:
		return interval{invalid: &ConfigError{"Interval", offset, "the offset must be whole microseconds, which is what databases keep"}}
	}
	return interval{d: d, offset: offset % d}
}

type interval struct {
	d, offset time.Duration
	invalid   *ConfigError
}

func (i interval) Next(t time.Time) time.Time {
	if i.invalid != nil {
		return time.Time{}
	}
	d, offset := i.d.Microseconds(), i.offset.Microseconds()
	us := t.UnixMicro() - offset
	n := us / d
	if us%d < 0 { // before 1970: round down, not towards zero
		n--
	}
	return time.UnixMicro((n+1)*d + offset).UTC()
}

// In is s as it goes by the clocks of loc. It is for a schedule that has no zone
// of its own but answers in that of the time it is asked with, as the schedules of
// robfig/cron's parser do unless the spec names one with CRON_TZ=.
func In(loc *time.Location, s Schedule) Schedule {
	if loc == nil || s == nil {
		return zoned{invalid: &ConfigError{"In", nil, "the location and the schedule must not be nil"}}
	}
	return zoned{loc: loc, s: s}
}

type zoned struct {
	loc     *time.Location
	s       Schedule
	invalid *ConfigError
}

func (z zoned) Next(t time.Time) time.Time {
	if z.invalid != nil {
		return time.Time{}
	}
	return z.s.Next(t.In(z.loc))
}

// checkSchedule finds out whether s has instants that replicas share, by asking
// from several points: before an instant, all of them must lead to it. One gap in
// which they do not is forgiven: robfig/cron's schedules are like that where
// clocks are set by half an hour, and a service must start on that day too.
func checkSchedule(s Schedule, now time.Time) error {
	switch own := s.(type) {
	case nil:
		return &ConfigError{"Schedule", nil, "must not be nil"}
	case interval:
		if own.invalid != nil {
			return own.invalid
		}
	case zoned:
		if own.invalid != nil {
			return own.invalid
		}
		if inner, ok := own.s.(interval); ok && inner.invalid != nil {
			return inner.invalid
		}
	}
	const points, gaps = 8, 3
	var disagreement error
	strays, t := 0, now
	for range gaps {
		next := s.Next(t)
		switch {
		case next.IsZero():
			if t.Equal(now) {
				return &ConfigError{"Schedule", fmt.Sprintf("%T", s), "has no instant that is still to come"}
			}
			return nil // it ends
		case !next.After(t):
			return &ConfigError{"Schedule", fmt.Sprintf("%T", s), fmt.Sprintf("must go forward: Next(%v) is %v", t, next)}
		}
		for i := range points {
			if from := t.Add(next.Sub(t) / points * time.Duration(i)); !s.Next(from).Equal(next) {
				disagreement = &ConfigError{"Schedule", fmt.Sprintf("%T", s), fmt.Sprintf(
					"has no instants that replicas share: after %v comes %v, but after %v comes %v; "+
						"instead of \"@every 1h\", which counts from each start, use joblease.Interval(time.Hour, 0) or a spec like \"0 * * * *\"",
					t, next, from, s.Next(from))}
				strays++
				break
			}
		}
		t = next.In(now.Location())
	}
	if strays == gaps {
		return disagreement
	}
	return nil
}

// nextTick is the first tick of s after t: in t's zone, in whole microseconds, and
// zero if there is none. An instant between two microseconds is rounded up, so
// that it has come when its tick has.
func nextTick(s Schedule, t time.Time) time.Time {
	next := s.Next(t)
	if !next.After(t) {
		return time.Time{}
	}
	if up := next.Truncate(time.Microsecond); up.Before(next) {
		next = up.Add(time.Microsecond)
	}
	return next.Round(0).In(t.Location())
}

// newest returns the last n ticks of s that lie after after and not after now, in
// order. It does not walk through all that came before, of which there may be a
// year.
func newest(s Schedule, after, now time.Time, n int) (ticks []time.Time) {
	for span := time.Minute; ; span *= 2 {
		from := now.Add(-span)
		all := span <= 0 || !from.After(after) // or the doubling has overflowed
		if all {
			from = after
		}
		ticks = ticks[:0]
		for t := nextTick(s, from); !t.IsZero() && !t.After(now); t = nextTick(s, t) {
			if len(ticks) == n {
				ticks = append(ticks[:0], ticks[1:]...)
			}
			ticks = append(ticks, t)
		}
		if all || len(ticks) == n {
			return ticks
		}
	}
}
