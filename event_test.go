package joblease_test

import (
	"bytes"
	"context"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

// lines is a log that can be read while it is written.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// with returns the lines that contain s.
func (l *lines) with(s string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.buf.String()) {
		if strings.Contains(line, s) {
			out = append(out, line)
		}
	}
	return out
}

// logTo lets a replica log to l.
func logTo(l *lines) func(*replica, *joblease.Config) {
	return func(_ *replica, c *joblease.Config) { c.Logger = slog.New(slog.NewTextHandler(l, nil)) }
}

func TestWinningLosingAndStandingByAreOneLineEachAtInfo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		la, lb := &lines{}, &lines{}
		a := start(t, m, "a", logTo(la))
		synctest.Wait()
		b := start(t, m, "b", logTo(lb))
		time.Sleep(time.Hour)
		require.Len(t, la.with(""), 1)
		require.Len(t, la.with("level=INFO msg=\"joblease: lease acquired\" lease=job replica=a token=1"), 1)
		require.Len(t, lb.with(""), 1, "a standby says so once")
		require.Len(t, lb.with("level=INFO msg=\"joblease: standing by: another replica holds the lease\" lease=job replica=b holder=a"), 1)
		theft(m)
		time.Sleep(ttl / 3)
		synctest.Wait()
		require.Len(t, la.with("level=INFO msg=\"joblease: lease lost, stopping the work\" lease=job replica=a token=1 error="), 1)
		require.Len(t, la.with(string(joblease.LostReplaced)), 1)
		time.Sleep(3 * ttl)
		require.NoError(t, a.shutdown())
		require.NoError(t, b.shutdown())
		require.Empty(t, la.with("WARN"))
		require.Empty(t, lb.with("WARN"))
		require.NotEmpty(t, append(la.with("lease released"), lb.with("lease released")...))
	})
}

func TestAFailingStoreIsLoggedAtOnceAndThenAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lines{}
		a := start(t, storetest.NewMemory(), "a", logTo(l), func(r *replica, _ *joblease.Config) { r.line.set(refused) })
		synctest.Wait()
		require.Len(t, l.with("level=WARN"), 1)
		require.Len(t, l.with("connection refused"), 1)
		time.Sleep(time.Hour)
		require.LessOrEqual(t, len(l.with("level=WARN")), 62)
		require.GreaterOrEqual(t, len(l.with("level=WARN")), 50)
		require.Greater(t, len(a.events.of(joblease.EventFailing)), 400, "the observer hears of each")
		a.line.set(none)
		time.Sleep(ttl)
		require.Len(t, l.with("lease store answers again"), 1)
		require.NoError(t, a.Status().Err)
	})
}

// setup is a store whose setup is wrong in a way that can change.
type setup struct {
	joblease.Store
	problem *atomic.Value
}

func (s setup) Acquire(ctx context.Context, c joblease.Claim) (joblease.Grant, error) {
	if p := s.problem.Load().(string); p != "" {
		return joblease.Grant{}, &joblease.SetupError{Problem: p, Remedy: "mend it"}
	}
	return s.Store.Acquire(ctx, c)
}

func TestEachProblemOfTheSetupIsLoggedWhenItIsMet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, problem := &lines{}, &atomic.Value{}
		problem.Store("no table")
		sup, err := joblease.NewSupervisor(setup{storetest.NewMemory(), problem}, "job", joblease.Idle(),
			joblease.Config{Logger: slog.New(slog.NewTextHandler(l, nil))})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- sup.Run(ctx) }()
		time.Sleep(20 * time.Second)
		require.Len(t, l.with("no table; mend it"), 1)
		problem.Store("no privilege")
		time.Sleep(20 * time.Second)
		require.Len(t, l.with("no privilege; mend it"), 1)
		problem.Store("")
		time.Sleep(20 * time.Second)
		require.NoError(t, sup.IsLeader(t.Context()))
		cancel()
		require.NoError(t, <-done)
	})
}

func TestAnObserverOrALogThatPanicsBlocksOrEndsItsGoroutineDelaysNothing(t *testing.T) {
	block := make(chan struct{})
	for name, misbehave := range map[string]func(){
		"panics":             func() { panic("boom") },
		"blocks":             func() { <-block },
		"ends its goroutine": runtime.Goexit,
	} {
		for _, where := range []string{"observer", "log"} {
			t.Run(where+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					block = make(chan struct{})
					m := storetest.NewMemory()
					a := start(t, m, "a", func(_ *replica, c *joblease.Config) {
						if where == "log" {
							c.Logger = slog.New(brokenLog{misbehave})
						} else {
							c.Observe = func(joblease.Event) { misbehave() }
						}
					})
					synctest.Wait()
					b := start(t, m, "b")
					time.Sleep(2 * time.Hour)
					require.Len(t, a.probe.history(), 1)
					require.True(t, a.Status().Held)
					a.stop()
					synctest.Wait() // no time passes
					require.True(t, b.probe.runs(), "the lease was released at once")
					began := time.Now()
					<-a.done
					require.LessOrEqual(t, time.Since(began), ttl/5, "Run waits a little for its callbacks")
					close(block)
				})
			})
		}
	}
}

type brokenLog struct{ misbehave func() }

func (brokenLog) Enabled(context.Context, slog.Level) bool    { return true }
func (h brokenLog) Handle(context.Context, slog.Record) error { h.misbehave(); return nil }
func (h brokenLog) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h brokenLog) WithGroup(string) slog.Handler             { return h }

func TestAnObserverThatWasTooSlowIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, block := &lines{}, make(chan struct{})
		first := true
		start(t, storetest.NewMemory(), "a", logTo(l), func(_ *replica, c *joblease.Config) {
			c.Observe = func(joblease.Event) {
				if first {
					first = false
					<-block
				}
			}
		})
		time.Sleep(time.Hour)
		close(block)
		synctest.Wait()
		require.Len(t, l.with("events were dropped"), 1)
	})
}

func TestTheObserverHearsEverythingInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := storetest.NewMemory()
		a := start(t, m, "a")
		time.Sleep(time.Minute)
		require.NoError(t, a.shutdown())
		kinds := map[joblease.EventKind]int{}
		a.events.mu.Lock()
		defer a.events.mu.Unlock()
		for i, e := range a.events.events {
			kinds[e.Kind]++
			require.Equal(t, "job", e.Lease)
			require.Equal(t, "a", e.Replica)
			require.Equal(t, int64(1), e.Token)
			require.True(t, i == 0 || !e.Time.Before(a.events.events[i-1].Time))
		}
		require.Equal(t, 1, kinds[joblease.EventAcquired])
		require.Equal(t, 1, kinds[joblease.EventReleased])
		require.GreaterOrEqual(t, kinds[joblease.EventRenewed], 11)
		require.Len(t, kinds, 3)
	})
}
