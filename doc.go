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
// hands. Nor does a lease make a job's effects happen exactly once;
// see Ticks for those in the same database.
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
// first look of a Lease, or of the job of a Guard, trusts the database's clock
// alone (so keep the value, and do not make one for each piece of work), so that a
// service that is started again after a crash does not wait; and two steps that
// cancel out between two looks are not seen.
//
// All replicas must use the same TTL and Margin, or change them one deployment at
// a time; a standby goes by the TTL that the holder stored.
//
// # Ticks
//
// A [Guard] runs each tick of a job on one replica, without a leader: all replicas
// claim the tick when it is due, and the database grants it to one, for ever.
//
//	guard, err := joblease.NewGuard(store, joblease.Config{})
//	...
//	nightly, err := cron.ParseStandard("CRON_TZ=Europe/Berlin 30 3 * * *")
//	...
//	err = guard.Run(ctx,
//		joblease.Job{Name: "report", Schedule: nightly, Run: sendReport, Missed: 1},
//		joblease.Job{Name: "poll", Schedule: joblease.Interval(time.Minute, 0), Run: poll},
//	) // until ctx ends
//
// Take a [Supervisor] for a scheduler that exists and knows nothing of replicas,
// for jobs that share something in memory, and for work that goes on between its
// ticks; all of it runs on one replica. Take a Guard for jobs that are
// independent: they spread over the replicas, the death of a replica costs what it
// was running and nothing else, and a tick that nobody has run can be made up
// for.
//
// A tick is the instant at which the schedule says that the job is due, on the
// database's clock, never the instant at which a replica woke up. What is promised:
//
//   - A tick is claimed at most once, by however many replicas and whatever their
//     clocks show, and so it runs at most once; with [Job.Again] it is run again if
//     its run was interrupted, and then at least once. In no case do two runs of
//     one job overlap, as far as a lease can promise that; see above.
//   - With a replica up and the database in reach, every tick runs, except: while
//     an earlier run lasts; and until the lease of a replica that died in a run
//     has expired. [Job.Missed] says what becomes of those, and of the ticks of a
//     time without replicas.
//   - Exactly once is for the effects in the same database: the Done method of the
//     stores marks the tick as done in the transaction of the run.
//
// When the database's clock is stepped forward, the ticks that it jumps over are
// missed ones; when it is stepped back, those that have been claimed do not come
// again.
//
// The schedule says what daylight saving does. With robfig/cron's parser a job at
// 02:30 in Berlin does not run on the last Sunday of March, when there is no
// 02:30, and runs twice on that of October, when there are two; one at 03:30 runs
// once on either day. [Interval] knows no daylight saving. A cron spec without
// CRON_TZ= has the zone of whoever asks: UTC in [Guard.Run], time.Local in
// [Guard.Wrap], and that of [In].
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
