package interop_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
)

var _ = joblease.Cron((*cron.Cron)(nil))

// ttl is the default. It costs nothing in a bubble.
const ttl = 15 * time.Second

// each is a cron.Schedule of the multiples of a duration, the same for all
// replicas.
type each time.Duration

func (e each) Next(t time.Time) time.Time {
	return t.Truncate(time.Duration(e)).Add(time.Duration(e))
}

// crons makes a cron with one job.
func crons(s cron.Schedule, job func(r *replica)) func(r *replica) joblease.Scheduler {
	return func(r *replica) joblease.Scheduler {
		c := cron.New()
		c.Schedule(s, cron.FuncJob(func() { job(r) }))
		return joblease.Cron(c)
	}
}

// theft makes the row that of somebody who dies at once, for that long.
func theft(t testing.TB, m *storetest.Memory, d time.Duration) {
	r := row(t, m)
	r.TTL = d
	r.Claim, r.Holder = joblease.NewClaimID(), "thief"
	r.Token++
	r.Version++
	r.RenewedAt = m.Now()
	r.ExpiresAt = r.RenewedAt.Add(r.TTL)
	m.Put(r)
}

func TestCronTicksExactlyWhileItsReplicaLeadsOverManyTerms(t *testing.T) {
	const interval = 50 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		job := crons(each(interval), (*replica).tick)
		a := start(t, m, quiet("a", ttl), job)
		synctest.Wait()
		b := start(t, m, quiet("b", ttl), job)

		// Each replica has at least three terms, which end in all the ways.
		for range 3 {
			for _, leader := range []*replica{a, b} {
				// Longer than a TTL, for which a replica that resigned sits out.
				time.Sleep(ttl + 7*time.Second + interval/3)
				require.True(t, leader.leads())
				leader.resign(t)
				synctest.Wait()
			}
		}
		theft(t, m, ttl)
		time.Sleep(3 * ttl)
		require.NoError(t, a.shutdown())
		time.Sleep(ttl + interval/3)
		require.NoError(t, b.shutdown())
		over := time.Now()
		time.Sleep(time.Hour)

		seen := map[time.Time]string{}
		for _, r := range []*replica{a, b} {
			terms, ticks := r.history(), r.runs()
			require.GreaterOrEqual(t, len(terms), 3)
			for _, x := range terms {
				require.False(t, x.stopped.IsZero())
				for len(ticks) > 0 && !ticks[0].After(x.stopped) {
					require.False(t, ticks[0].Before(x.began), "%s ticked while it did not lead", r.name)
					require.Empty(t, seen[ticks[0]], "a tick ran twice")
					seen[ticks[0]] = r.name
					ticks = ticks[1:]
				}
				for at := each(interval).Next(x.began); at.Before(x.stopped); at = at.Add(interval) {
					require.Equal(t, r.name, seen[at], "a tick of the term did not run")
				}
			}
			require.Empty(t, ticks, "%s ticked after its last stop", r.name)
		}
		require.Greater(t, len(seen), int(over.Sub(a.history()[0].began)/interval/2))
	})
}

func TestTheLeaseIsReleasedOnlyWhenTheJobThatCronRunsHasEnded(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *replica){
		"resigned": func(t *testing.T, r *replica) { r.resign(t) },
		"shut down": func(t *testing.T, r *replica) {
			require.NoError(t, r.shutdown())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := storetest.NewMemory()
				const long = 4 * ttl
				var ended atomic.Int64
				cfg := quiet("a", ttl)
				cfg.StopTimeout = 2 * long
				job := crons(each(time.Hour), func(r *replica) {
					r.tick()
					time.Sleep(long)
					require.Equal(t, r.name, row(t, m).Holder, "the lease is held to the last")
					require.True(t, row(t, m).Held())
					ended.Store(time.Now().UnixNano())
				})
				a := start(t, m, cfg, job)
				synctest.Wait()
				b := start(t, m, quiet("b", ttl), job)
				<-a.ticked
				time.Sleep(time.Second)
				end(t, a)
				require.Equal(t, ended.Load(), time.Now().UnixNano(), "waited for, and not longer")
				synctest.Wait()
				require.True(t, b.leads(), "at once")
				require.Len(t, b.history(), 1)
				require.Equal(t, ended.Load(), b.history()[0].began.UnixNano())
			})
		})
	}
}

// oneAtATime is cron.DelayIfStillRunning: runs queue up behind one another. That
// one waits for a mutex, which does not let the time of a bubble go on.
func oneAtATime() cron.JobWrapper {
	return func(j cron.Job) cron.Job {
		turn := make(chan struct{}, 1)
		return cron.FuncJob(func() {
			turn <- struct{}{}
			defer func() { <-turn }()
			j.Run()
		})
	}
}

func TestAJobThatCronHasQueuedDoesNotPassTheGateOnceTheTermIsOver(t *testing.T) {
	for _, gated := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m := storetest.NewMemory()
			var ran atomic.Int64
			cfg := quiet("a", ttl)
			cfg.StopTimeout = time.Hour
			a := start(t, m, cfg, func(r *replica) joblease.Scheduler {
				job := func() {
					ran.Add(1)
					time.Sleep(50 * time.Second)
				}
				if gated {
					job = r.Gate(func(context.Context) {
						ran.Add(1)
						time.Sleep(50 * time.Second)
					})
				}
				c := cron.New(cron.WithChain(oneAtATime()))
				c.Schedule(each(20*time.Second), cron.FuncJob(job))
				return joblease.Cron(c)
			})
			synctest.Wait()
			time.Sleep(time.Until(each(20*time.Second).Next(time.Now())) + 45*time.Second)
			require.Equal(t, int64(1), ran.Load(), "one runs, two are overdue")
			theft(t, m, time.Hour)
			time.Sleep(ttl / 3) // the next renewal
			synctest.Wait()
			require.False(t, a.leads())
			time.Sleep(3 * 50 * time.Second)
			require.False(t, a.history()[0].stopped.IsZero())
			want := int64(1)
			if !gated { // this is what the gate is for
				want = 3
			}
			require.Equal(t, want, ran.Load())
		})
	}
}
