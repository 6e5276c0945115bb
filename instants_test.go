package joblease_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// delay is what robfig/cron makes of "@every".
type delay time.Duration

func (d delay) Next(t time.Time) time.Time {
	return t.Add(time.Duration(d) - time.Duration(t.Nanosecond()))
}

// daily is each day at that time of day, in the zone of the time it is asked with.
type daily time.Duration

func (d daily) Next(t time.Time) time.Time {
	for n := 0; ; n++ {
		next := time.Date(t.Year(), t.Month(), t.Day()+n, 0, 0, 0, int(d), t.Location())
		if next.After(t) {
			return next
		}
	}
}

type scheduleFunc func(time.Time) time.Time

func (f scheduleFunc) Next(t time.Time) time.Time { return f(t) }

func TestASchedulesInstantsMustBeShared(t *testing.T) {
	g, err := joblease.NewGuard(storetest.NewMemory(), quiet("a"))
	require.NoError(t, err)
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, s := range map[string]joblease.Schedule{
		"interval":        joblease.Interval(90*time.Second, 0),
		"short interval":  joblease.Interval(time.Millisecond, time.Microsecond),
		"long interval":   joblease.Interval(100*365*24*time.Hour, 0),
		"each second":     delay(time.Second), // which are whole seconds
		"daily":           daily(6 * time.Hour),
		"daily in a zone": joblease.In(berlin, daily(6*time.Hour)),
		"once": scheduleFunc(func(t time.Time) time.Time {
			if at := time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC); t.Before(at) {
				return at
			}
			return time.Time{}
		}),
	} {
		_, err := g.Wrap(t.Context(), "job", s, discard)
		require.NoError(t, err, name)
	}
	for name, s := range map[string]joblease.Schedule{
		"@every 2s":  delay(2 * time.Second),
		"@every 90s": delay(90 * time.Second),
		"@every 1h":  delay(time.Hour),
		"jitter":     scheduleFunc(func(t time.Time) time.Time { return t.Add(time.Hour + rand.N(time.Hour)) }),
		"never":      scheduleFunc(func(time.Time) time.Time { return time.Time{} }),
		"backwards":  scheduleFunc(func(t time.Time) time.Time { return t.Add(-time.Hour) }),
		"stands":     scheduleFunc(func(t time.Time) time.Time { return t }),
		"none":       nil,
	} {
		_, err := g.Wrap(t.Context(), "job", s, discard)
		var invalid *joblease.ConfigError
		require.ErrorAs(t, err, &invalid, name)
		require.Equal(t, "Schedule", invalid.Field)
		if _, every := s.(delay); every {
			require.ErrorContains(t, err, "joblease.Interval", "the way out is named")
		}
	}
}

func TestAnIntervalIsCountedFromTheEpochAndNotFromTheStart(t *testing.T) {
	at := func(s string) time.Time {
		v, err := time.Parse(time.RFC3339Nano, s)
		require.NoError(t, err)
		return v
	}
	for _, c := range []struct {
		d, offset time.Duration
		t, want   string
	}{
		{time.Hour, 0, "2026-03-04T10:20:30Z", "2026-03-04T11:00:00Z"},
		{time.Hour, 0, "2026-03-04T11:00:00Z", "2026-03-04T12:00:00Z"},
		{time.Hour, 0, "2026-03-04T10:59:59.999999999Z", "2026-03-04T11:00:00Z"},
		{time.Hour, 5 * time.Minute, "2026-03-04T10:20:30Z", "2026-03-04T11:05:00Z"},
		{time.Hour, -5 * time.Minute, "2026-03-04T10:20:30Z", "2026-03-04T10:55:00Z"},
		{time.Hour, 25*time.Hour + time.Minute, "2026-03-04T10:00:30Z", "2026-03-04T10:01:00Z"},
		{time.Hour, 0, "2026-03-04T10:20:30+05:30", "2026-03-04T05:00:00Z"},
		{7 * time.Hour, 0, "1970-01-01T00:00:00Z", "1970-01-01T07:00:00Z"},
		{7 * time.Hour, 0, "1969-12-31T23:00:00Z", "1970-01-01T00:00:00Z"},
		{7 * time.Hour, 0, "1969-12-31T17:00:00Z", "1970-01-01T00:00:00Z"},
		{time.Second / 2, 0, "2026-03-04T10:20:30.4Z", "2026-03-04T10:20:30.5Z"},
	} {
		require.Equal(t, at(c.want).UTC(), joblease.Interval(c.d, c.offset).Next(at(c.t)), "%v+%v after %v", c.d, c.offset, c.t)
	}
}
