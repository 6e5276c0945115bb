// Package joblease keeps scheduled jobs on one replica at a time. The replicas
// of a service share one row per lease in the database that the service already
// has: whoever holds the lease runs the jobs, another takes over when the holder
// dies, and nothing stops when the database is away for less than a lease.
//
// What it does not promise: a lease alone cannot stop a process that was paused,
// for a garbage collection, a suspend or a debugger, from finishing a write that
// it had already begun when it was replaced. Only a fence can: [Grant.Token]
// grows with each change of hands, so a sink that remembers the greatest token it
// has seen can refuse older ones, and for writes in the same database the stores
// have a Fence method that orders the caller's transaction with every change of
// hands. Nor does a lease make a job's effects happen exactly once.
//
// # Use
//
// A [Supervisor] keeps a scheduler in step with a lease. This is a service with
// robfig/cron and PostgreSQL:
//
//	pool, err := pgxpool.New(ctx, url)
//	...
//	store, err := pgstore.New(pool, pgstore.Options{})
//	...
//	defer store.Close()
//	if err := store.Migrate(ctx); err != nil {
//		...
//	}
//	c := cron.New()
//	sup, err := joblease.NewSupervisor(store, "reports", joblease.Cron(c), joblease.Config{})
//	...
//	_, err = c.AddFunc("0 6 * * *", sup.Gate(sendReports))
//	...
//	err = sup.Run(ctx) // until ctx ends
//
// [Lease.Do] holds a lease around one piece of work. [Lease] itself has the
// single steps, for those who renew by themselves.
//
// Stores are in package pgstore, for PostgreSQL through pgx, and in the module
// github.com/joblease/joblease/sqlstore, for SQLite through database/sql.
//
// # States
//
// A supervisor's life, and what takes it from one state to the next:
//
//	            Run                  the lease is granted
//	Stopped ──────────▶ Standby ───────────────────────────▶ Leading
//	   ▲                 ▲   ▲                                │ │ │
//	   │ ctx ends        │   │ the lease is lost: the work    │ │ │
//	   ├─────────────────┤   │ is told, and has stopped       │ │ │
//	   │                 │   └────────────────────────────────┘ │ │
//	   │    a while has  │                                      │ │
//	   │    passed       │       the scheduler failed, or       │ │
//	   ├───────────── Paused ◀── Resign: stopped, released ─────┘ │
//	   │                                                          │
//	   │     ctx ends, or the scheduler is finished: it has       │
//	   └──── stopped, the lease is released ──────────────────────┘
//
// A term is one stay in Leading. Start and stop of the scheduler are strictly
// paired, and a term never begins in a process before the work of the one before
// has stopped.
//
// # Trust
//
// A holder trusts its lease until
//
//	(instant before the last successful request was sent) + TTL - Margin
//
// on its own monotonic clock; at that instant the context of the work is
// cancelled, whatever a database call may be waiting for. A renewal that fails is
// not a loss: it is tried again until trust ends. Only the end of trust, or the
// database's word that the row carries another claim, is a loss.
//
// The monotonic clock stands still while a machine is suspended. So when the wall
// clock has run ahead of it by more than Margin, the lease counts as not held
// until a renewal, made at once, has confirmed it. A replica that does not ask
// ([Held], [Supervisor.Gate], [Every]) notices at the next renewal, at most
// RenewEvery later.
//
// Nobody else gets the lease before trust has ended. A candidate waits on its own
// monotonic clock from the answer in which it first saw the row's last version:
// for what was left of the lease then, if the database's clock is known to have
// run true since the look before, and otherwise for the whole TTL; and it takes
// the lease only if the version is still the same. So no clock that is stepped,
// the database's or a replica's, makes two terms overlap, with two exceptions: a
// process's first look at a lease trusts the database's clock alone, so that a
// service that is started again after a crash does not wait; and two steps that
// cancel out between two looks are not seen.
//
// All replicas must use the same TTL and Margin, or change them one deployment at
// a time; a standby goes by the TTL that the holder stored.
//
// # Failures
//
// Everything fails closed. There are three answers to the question whose the
// lease is, and they are kept apart: mine; another's ([ErrHeld]); not known (any
// other error). Work runs on the first alone. A store that is down, slow or not
// set up is asked again for ever, at a bounded rate, and the log says what is
// wrong and what to do. Nothing has to be restarted.
//
// A statement that was sent and not answered may reach the database late. A late
// renewal or release matches its own claim and nothing else. A late acquire can
// take a lease that is free, for a claim that nobody uses any more: then nobody
// runs until it expires.
package joblease
