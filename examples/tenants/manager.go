package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/joblease/joblease"
)

// Manager is one replica of a service with many tenants. Each tenant's work has a
// lease of its own, so that the tenants spread over the replicas, and one that is
// in trouble troubles no other.
//
// All methods are safe for concurrent use. Whoever makes a Manager closes it.
type Manager struct {
	replica string
	store   joblease.Store
	cfg     joblease.Config
	work    func(tenant string) joblease.Scheduler

	mu      sync.Mutex
	closed  bool
	tenants map[string]*tenant
}

// tenant is the supervisor of one tenant, and the goroutine that runs it.
type tenant struct {
	sup  *joblease.Supervisor
	stop context.CancelFunc
	done chan struct{} // closed when Run has returned
	err  error         // what it returned
}

// leasePrefix keeps the names of tenants apart from those of other leases.
const leasePrefix = "tenant/"

// NewManager returns the replica of that name, without tenants. work makes what
// runs for a tenant.
func NewManager(store joblease.Store, replica string, cfg joblease.Config, work func(tenant string) joblease.Scheduler) *Manager {
	cfg.Holder = replica
	return &Manager{replica: replica, store: store, cfg: cfg, work: work, tenants: make(map[string]*tenant)}
}

// Add begins to ask for the lease of a tenant, and goes on until the tenant is
// removed. It does not block. Adding a tenant that is there does nothing.
func (m *Manager) Add(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return errors.New("the manager is closed")
	}
	if m.tenants[name] != nil {
		return nil
	}
	sup, err := joblease.NewSupervisor(m.store, leasePrefix+name, m.work(name), m.cfg)
	if err != nil {
		return fmt.Errorf("tenant %q: %w", name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	t := &tenant{sup: sup, stop: cancel, done: make(chan struct{})}
	m.tenants[name] = t
	go func() {
		defer close(t.done)
		defer cancel()
		select {
		case <-time.After(headStart(m.replica, name)):
			t.err = sup.Run(ctx)
		case <-ctx.Done():
		}
	}()
	return nil
}

// headStart is how long a replica leaves a new tenant to others. It differs from
// replica to replica, and the order differs from tenant to tenant. So replicas
// that start together share the tenants, without knowing of each other, and one
// that is alone takes them all.
func headStart(replica, tenant string) time.Duration {
	h := fnv.New64a()
	h.Write([]byte(replica + "\x00" + tenant))
	return time.Duration(h.Sum64()%500) * time.Millisecond
}

// Remove stops the work of a tenant here and waits until it has stopped; if this
// replica had the lease it is free then, and a replica that still has the tenant
// takes it. The error is that of the work: an *joblease.OverrunError if it has not
// stopped in time. Removing a tenant that is not there does nothing.
func (m *Manager) Remove(name string) error {
	m.mu.Lock()
	t := m.tenants[name]
	delete(m.tenants, name)
	m.mu.Unlock()
	if t == nil {
		return nil
	}
	t.stop()
	<-t.done
	return t.err
}

// Shed hands tenants over until this replica leads at most keep: the way to bring
// a replica that came late to its share. It blocks until they have stopped here,
// or until ctx ends.
func (m *Manager) Shed(ctx context.Context, keep int) error {
	led := m.Led()
	if len(led) <= keep {
		return nil
	}
	var errs []error
	for _, name := range led[keep:] {
		m.mu.Lock()
		t := m.tenants[name]
		m.mu.Unlock()
		if t != nil {
			errs = append(errs, t.sup.Resign(ctx))
		}
	}
	return errors.Join(errs...)
}

// Led returns the tenants whose lease this replica holds, in the order of their
// names.
func (m *Manager) Led() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var led []string
	for _, name := range slices.Sorted(maps.Keys(m.tenants)) {
		if m.tenants[name].sup.Status().Held {
			led = append(led, name)
		}
	}
	return led
}

// Close removes all tenants, at the same time, and waits until their work has
// stopped. No tenant can be added from then on.
func (m *Manager) Close() error {
	m.mu.Lock()
	m.closed = true
	tenants := m.tenants
	m.tenants = nil
	m.mu.Unlock()
	for _, t := range tenants {
		t.stop()
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(tenants)) {
		<-tenants[name].done
		if err := tenants[name].err; err != nil {
			errs = append(errs, fmt.Errorf("tenant %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}
