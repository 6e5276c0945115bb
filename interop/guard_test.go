package interop_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
)

func newGuard(t *testing.T, s joblease.Store) *joblease.Guard {
	t.Helper()
	g, err := joblease.NewGuard(s, joblease.Config{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))})
	require.NoError(t, err)
	return g
}

func parse(t *testing.T, spec string) cron.Schedule {
	t.Helper()
	s, err := cron.ParseStandard(spec)
	require.NoError(t, err)
	return s
}

// ranFrom runs a job of that schedule from an instant on, for so long, on three
// replicas, and returns the ticks that ran.
func ranFrom(t *testing.T, s joblease.Schedule, from time.Time, long time.Duration) (ticks []time.Time) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		m.Step(from.Sub(m.Now()))
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var mu sync.Mutex
		var replicas sync.WaitGroup
		for range 3 {
			g := newGuard(t, m)
			replicas.Go(func() {
				err := g.Run(ctx, joblease.Job{Name: "job", Schedule: s, Run: func(ctx context.Context) error {
					grant, _ := joblease.GrantFrom(ctx)
					mu.Lock()
					defer mu.Unlock()
					ticks = append(ticks, grant.Tick)
					return nil
				}})
				if err != nil {
					t.Error(err)
				}
			})
		}
		replicas.Wait()
	})
	return ticks
}

// In Berlin the clocks were set from 02:00 to 03:00 on 29 March 2026, and from
// 03:00 back to 02:00 on 25 October 2026.
func TestTicksAtTheBeginningAndTheEndOfDaylightSaving(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for _, c := range []struct {
		spec           string
		spring, autumn []string // local times of the day's ticks
	}{
		// A time of day that the spring skips is skipped with its job; one that
		// the autumn repeats comes twice.
		{"30 2 * * *", nil, []string{"02:30 +0200", "02:30 +0100"}},
		{"0 2 * * *", nil, []string{"02:00 +0200", "02:00 +0100"}},
		{"30 1 * * *", []string{"01:30 +0100"}, []string{"01:30 +0200"}},
		{"0 3 * * *", []string{"03:00 +0200"}, []string{"03:00 +0100"}},
		{"30 3 * * *", []string{"03:30 +0200"}, []string{"03:30 +0100"}},
		{"0 6 * * *", []string{"06:00 +0200"}, []string{"06:00 +0100"}},
	} {
		for _, days := range []struct {
			day  time.Time
			want []string
		}{
			{time.Date(2026, 3, 29, 0, 0, 0, 0, berlin), c.spring},
			{time.Date(2026, 10, 25, 0, 0, 0, 0, berlin), c.autumn},
		} {
			length := days.day.AddDate(0, 0, 1).Sub(days.day) - time.Second
			for name, s := range map[string]joblease.Schedule{
				"in its spec": parse(t, "CRON_TZ=Europe/Berlin "+c.spec),
				"by In":       joblease.In(berlin, parse(t, c.spec)),
			} {
				var got []string
				for _, tick := range ranFrom(t, s, days.day, length) {
					got = append(got, tick.In(berlin).Format("15:04 -0700"))
				}
				require.Equal(t, days.want, got, "%s on %s, zone %s", c.spec, days.day.Format(time.DateOnly), name)
			}
		}
	}
	// Each hour of the day is an instant, so 23 and 25.
	hourly := parse(t, "CRON_TZ=Europe/Berlin 0 * * * *")
	require.Len(t, ranFrom(t, hourly, time.Date(2026, 3, 28, 23, 59, 0, 0, berlin), 23*time.Hour+30*time.Second), 23)
	require.Len(t, ranFrom(t, hourly, time.Date(2026, 10, 24, 23, 59, 0, 0, berlin), 25*time.Hour+30*time.Second), 25)
}

func TestASpecWithoutAZoneIsReadInUTC(t *testing.T) {
	from := time.Date(2026, 7, 1, 0, 0, 0, 0, time.UTC)
	require.Equal(t, []time.Time{from.Add(6 * time.Hour)}, ranFrom(t, parse(t, "0 6 * * *"), from, 23*time.Hour))
}

// All points before an instant lead to it, also on the days on which the clocks
// are set: a service must not be refused its schedule because of when it starts.
func TestCronSchedulesAreAcceptedWheneverTheServiceStarts(t *testing.T) {
	specs := []string{
		"* * * * *", "*/7 * * * *", "0 * * * *", "0 2 * * *", "30 2 * * *", "59 1 * * *", "0 3 * * *", "15,45 1-3 * * *",
		"0 0 * * *", "0 6 * * 1-5", "0 0 1 * *", "30 2 29 3 *", "30 2 25 10 *", "@hourly", "@daily", "@weekly", "@yearly",
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo", "Asia/Kolkata", "Pacific/Apia"} {
		loc, err := time.LoadLocation(zone)
		require.NoError(t, err)
		for _, spec := range specs {
			s := parse(t, "CRON_TZ="+zone+" "+spec)
			for _, day := range []time.Time{
				time.Date(2026, 3, 28, 0, 0, 0, 0, loc), time.Date(2026, 10, 24, 0, 0, 0, 0, loc),
				time.Date(2026, 3, 7, 0, 0, 0, 0, loc), time.Date(2026, 10, 31, 0, 0, 0, 0, loc),
				time.Date(2026, 4, 4, 0, 0, 0, 0, loc), time.Date(2026, 10, 3, 0, 0, 0, 0, loc),
				time.Date(2018, 11, 3, 0, 0, 0, 0, loc), // midnight was skipped in Sao Paulo
			} {
				for at := day; at.Before(day.Add(54 * time.Hour)); at = at.Add(97 * time.Minute) {
					require.NoError(t, startsAt(t, s, at), "%s in %s, started %v", spec, zone, at)
				}
			}
		}
	}
}

// startsAt registers a job with that schedule as if the time were at.
func startsAt(t *testing.T, s joblease.Schedule, at time.Time) error {
	g := newGuard(t, storetest.NewMemory())
	_, err := g.Wrap(t.Context(), "job", shifted{s, time.Until(at)}, func(context.Context) error { return nil })
	return err
}

type shifted struct {
	joblease.Schedule
	by time.Duration
}

func (s shifted) Next(t time.Time) time.Time { return s.Schedule.Next(t.Add(s.by)).Add(-s.by) }

func TestCronsEveryIsRefusedUnlessItMeansWholeSeconds(t *testing.T) {
	g := newGuard(t, storetest.NewMemory())
	for spec, fine := range map[string]bool{"@every 1s": true, "@every 2s": false, "@every 90s": false, "@every 1h": false, "@every 24h": false, "@hourly": true} {
		_, err := g.Wrap(t.Context(), "job", parse(t, spec), func(context.Context) error { return nil })
		if fine {
			require.NoError(t, err, spec)
			continue
		}
		require.ErrorAs(t, err, new(*joblease.ConfigError), spec)
		require.ErrorContains(t, err, "joblease.Interval")
	}
}

// Three replicas with a robfig/cron each, which all run the wrapped job.
func TestAWrappedCronJobRunsOnceATick(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		loc  *time.Location
		wrap func(cron.Schedule) joblease.Schedule
		spec string
	}{
		"as it is":      {time.Local, func(s cron.Schedule) joblease.Schedule { return s }, "0 6 * * *"},
		"a zone's spec": {time.Local, func(s cron.Schedule) joblease.Schedule { return s }, "CRON_TZ=Europe/Berlin 0 6 * * *"},
		"WithLocation":  {berlin, func(s cron.Schedule) joblease.Schedule { return joblease.In(berlin, s) }, "0 6 * * *"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				ctx, cancel := context.WithCancel(t.Context())
				var mu sync.Mutex
				ran := map[string]int{}
				var crons []*cron.Cron
				for range 3 {
					s := parse(t, c.spec)
					job, err := newGuard(t, m).Wrap(ctx, "job", c.wrap(s), func(ctx context.Context) error {
						grant, _ := joblease.GrantFrom(ctx)
						mu.Lock()
						defer mu.Unlock()
						ran[fmt.Sprint(grant.Tick)]++
						return nil
					})
					require.NoError(t, err)
					cr := cron.New(cron.WithLocation(c.loc))
					cr.Schedule(s, cron.FuncJob(job))
					cr.Start()
					crons = append(crons, cr)
				}
				time.Sleep(10 * 24 * time.Hour)
				cancel()
				for _, cr := range crons {
					<-cr.Stop().Done()
				}
				require.Len(t, ran, 10)
				for tick, n := range ran {
					require.Equal(t, 1, n, tick)
				}
			})
		})
	}
}
