package joblease_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
	"github.com/stretchr/testify/require"
)

const ttl = 15 * time.Second // the default

// trust is how long a lease is trusted after the send of its last renewal.
const trust = ttl - ttl/10

var errCut = errors.New("connection refused")

// fault is what happens to a statement between a replica and the database.
type fault int

const (
	none       fault = iota
	refused          // fails at once, and does not reach the database
	blackholed       // does not reach the database, and no answer comes
	answerLost       // takes effect, and no answer comes
	deaf             // no answer comes, and the driver does not even notice the end of ctx
)

// line is one replica's connection to the database, and what can happen to it.
type line struct {
	*storetest.Memory

	mu     sync.Mutex
	fault  fault
	delay  time.Duration // of each answer
	healed chan struct{}
	calls  int
}

func newLine(m *storetest.Memory) *line { return &line{Memory: m, healed: make(chan struct{})} }

// set breaks the line in this way, or heals it.
func (l *line) set(f fault) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = f
	if f == none {
		close(l.healed)
		l.healed = make(chan struct{})
	}
}

func (l *line) setDelay(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.delay = d
}

// statements returns how many calls have been made.
func (l *line) statements() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.calls
}

func (l *line) send(ctx context.Context, statement func() error) error {
	l.mu.Lock()
	l.calls++
	f, delay, healed := l.fault, l.delay, l.healed
	l.mu.Unlock()
	switch f {
	case refused:
		return errCut
	case blackholed:
		<-ctx.Done()
		return ctx.Err()
	case answerLost:
		_ = statement() // nobody hears of it
		<-ctx.Done()
		return ctx.Err()
	case deaf:
		<-healed
		return errCut
	}
	err := statement()
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func (l *line) Acquire(ctx context.Context, c joblease.Claim) (g joblease.Grant, err error) {
	err = l.send(ctx, func() (err error) { g, err = l.Memory.Acquire(ctx, c); return err })
	if err != nil {
		return joblease.Grant{}, err
	}
	return g, nil
}

func (l *line) Renew(ctx context.Context, g joblease.Grant) error {
	return l.send(ctx, func() error { return l.Memory.Renew(ctx, g) })
}

func (l *line) Release(ctx context.Context, g joblease.Grant) error {
	return l.send(ctx, func() error { return l.Memory.Release(ctx, g) })
}

// quiet is a Config without log output.
func quiet(holder string) joblease.Config {
	return joblease.Config{Holder: holder, Logger: slog.New(slog.DiscardHandler)}
}

// journal collects events.
type journal struct {
	mu     sync.Mutex
	events []joblease.Event
}

func (j *journal) observe(e joblease.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, e)
}

func (j *journal) of(k joblease.EventKind) []joblease.Event {
	j.mu.Lock()
	defer j.mu.Unlock()
	var out []joblease.Event
	for _, e := range j.events {
		if e.Kind == k {
			out = append(out, e)
		}
	}
	return out
}

// probe is a scheduler that notes its terms, and panics if two overlap.
type probe struct {
	stopping func() // if set, runs after ctx has ended, and delays the stop

	mu      sync.Mutex
	running bool
	terms   []probeTerm
}

type probeTerm struct {
	token   int64
	started time.Time
	told    time.Time // ctx ended
	stopped time.Time
	cause   error
}

func (p *probe) Run(ctx context.Context) error {
	g, ok := joblease.GrantFrom(ctx)
	p.mu.Lock()
	if !ok || p.running {
		p.mu.Unlock()
		panic("started twice, or without a grant")
	}
	p.running = true
	i := len(p.terms)
	p.terms = append(p.terms, probeTerm{token: g.Token, started: time.Now()})
	p.mu.Unlock()

	<-ctx.Done()
	told := time.Now()
	if p.stopping != nil {
		p.stopping()
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	p.running = false
	p.terms[i].told, p.terms[i].stopped, p.terms[i].cause = told, time.Now(), context.Cause(ctx)
	return nil
}

func (p *probe) runs() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.running
}

func (p *probe) history() []probeTerm {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]probeTerm(nil), p.terms...)
}

// replica is a supervisor that runs in the background.
type replica struct {
	*joblease.Supervisor
	line   *line
	probe  *probe
	events *journal
	stop   context.CancelFunc
	done   chan struct{}
	err    error // of Run, once done is closed
}

// start runs a supervisor of a probe on a line of its own to m. The test's end
// stops it and waits for it.
func start(t *testing.T, m *storetest.Memory, holder string, change ...func(*replica, *joblease.Config)) *replica {
	t.Helper()
	r := &replica{line: newLine(m), probe: &probe{}, events: &journal{}, done: make(chan struct{})}
	cfg := quiet(holder)
	cfg.Observe = r.events.observe
	for _, c := range change {
		c(r, &cfg)
	}
	var err error
	r.Supervisor, err = joblease.NewSupervisor(r.line, "job", r.probe, cfg)
	require.NoError(t, err)
	r.launch(t)
	return r
}

// launch calls Run.
func (r *replica) launch(t *testing.T) {
	var ctx context.Context
	ctx, r.stop = context.WithCancel(context.Background())
	done := make(chan struct{})
	r.done = done
	go func() {
		defer close(done)
		r.err = r.Run(ctx)
	}()
	t.Cleanup(func() { r.stop(); <-done })
}

// shutdown ends the replica in good order and waits for it.
func (r *replica) shutdown() error {
	r.stop()
	<-r.done
	return r.err
}

// kill ends the replica as SIGKILL does, as far as the others can see: nothing it
// sends reaches the database any more.
func (r *replica) kill() {
	r.line.set(refused)
	_ = r.shutdown()
}

func row(t *testing.T, m *storetest.Memory) joblease.Record {
	t.Helper()
	r, ok := m.Get("job")
	require.True(t, ok, "there is no row")
	return r
}
