package joblease

import (
	"context"
	"errors"
	"time"
)

// jobLoop waits for the ticks of one job and claims them. The database's clock
// says what is due, the local monotonic clock only measures how long to sleep.
type jobLoop struct {
	job   Job
	lease *Lease
	watch Watch // of releases, if the job ever waits for one

	// settled: the ticks up to here are not to be claimed any more.
	settled time.Time
	// unborn: no tick had been claimed yet, by anybody, when the row was last read,
	// and those that are missed are counted from the first one.
	unborn bool
	// interrupted is a tick that was claimed and has not been seen to finish,
	// under a job that is to run it again if it never does. Zero if there is none.
	interrupted time.Time
	// tried is a tick whose claim has failed so far, and why.
	tried    time.Time
	triedErr error
}

const (
	// lookEvery is how long the estimate of the database's clock is good for. The
	// two drift apart by 0.3 s in that time if one of them is slewed by NTP, at
	// 500 ppm.
	lookEvery = 10 * time.Minute
	// sleepAtMost is how long a suspend of the machine, during which timers stand
	// still, can go unnoticed.
	sleepAtMost = time.Minute
)

// run returns when ctx has ended, or with the end of a run that panicked or that
// did not stop.
func (j *jobLoop) run(ctx context.Context) termEnd {
	l := j.lease
	if w, ok := l.store.(Watcher); ok && (j.job.Missed > 0 || j.job.Again) {
		j.watch = w.Watch(l.name)
		defer j.watch.Stop()
	}
	defer j.leave(ctx)
	j.begin(ctx)
	for {
		tick, ok := j.next(ctx)
		if !ok {
			return termEnd{}
		}
		select {
		case <-j.watch.Wake: // what it told is older than the claim
		default:
		}
		select {
		case l.busy <- struct{}{}: // unless the caller runs the job by Once too
		case <-ctx.Done():
			continue
		}
		run := l.attempt(ctx, tick, work{j.job.Run, true})
		l.report(run)
		l.done(run.end)
		if run.end.panicked != nil || run.end.overrun != nil {
			return run.end
		}
		j.settle(ctx, tick, run)
	}
}

// leave gives back the claim whose answer was lost, if there is one.
func (j *jobLoop) leave(ctx context.Context) {
	select {
	case j.lease.busy <- struct{}{}:
		j.lease.giveBack(ctx)
		<-j.lease.busy
	default: // the lease is in use
	}
}

// begin finds out what the last tick was and what the database's clock shows.
func (j *jobLoop) begin(ctx context.Context) {
	for ctx.Err() == nil {
		row, err := j.look(ctx)
		if err != nil {
			pause(ctx, j.lease.pause(err, false), nil)
			continue
		}
		j.settled, j.unborn = row.Clock, j.job.Missed > 0
		j.born(row)
		return
	}
}

// born sets out from the last tick that was claimed, if there is one.
func (j *jobLoop) born(row *TickError) {
	if j.unborn && !row.Last.IsZero() {
		j.unborn = false
		if row.Last.Before(row.Clock) {
			j.settled = row.Last
		}
	}
}

// look reads what stands in the row, and the database's clock.
func (j *jobLoop) look(ctx context.Context) (*TickError, error) {
	row, err := j.lease.peek(context.WithoutCancel(ctx))
	if err == nil && j.job.Again && !row.Done {
		j.interrupted = row.Last
	}
	return row, err
}

// next waits until a tick is to be claimed. It returns false when ctx ends.
func (j *jobLoop) next(ctx context.Context) (Tick, bool) {
	for ctx.Err() == nil {
		now, stale := j.lease.databaseNow()
		slice := sleepAtMost
		if stale {
			_, err := j.look(ctx)
			if err == nil {
				continue
			}
			slice = j.lease.pause(err, false)
		}
		if !j.interrupted.IsZero() {
			return Tick{At: j.interrupted, Again: true}, true
		}
		if j.settled.After(now) {
			// The clock was stepped back. The row still refuses what it has seen;
			// when that is mended, this must not have to be restarted.
			j.settled = now
		}
		due := nextTick(j.job.Schedule, j.settled)
		switch {
		case due.IsZero(): // the schedule has ended
			<-ctx.Done()
		case due.After(now):
			pause(ctx, min(due.Sub(now), slice), nil)
		default:
			if j.unborn {
				// Another replica may have claimed the first one, late, and died.
				row, err := j.look(ctx)
				if err != nil {
					pause(ctx, j.lease.pause(err, false), nil)
					continue
				}
				if j.born(row); !j.unborn {
					continue
				}
			}
			if tick, ok := j.pick(now); ok {
				return Tick{At: tick}, true
			}
		}
	}
	return Tick{}, false
}

// pick chooses among the ticks that are due.
func (j *jobLoop) pick(now time.Time) (time.Time, bool) {
	ticks := newest(j.job.Schedule, j.settled, now, max(1, j.job.Missed))
	if len(ticks) == 0 { // a schedule that does not keep its word
		j.settled = now
		return time.Time{}, false
	}
	tick := ticks[0]
	late := j.job.Missed == 0 && now.Sub(tick) > 2*j.lease.cfg.TTL
	if j.triedErr != nil && (late || tick.After(j.tried)) {
		j.lease.missed(j.tried, j.triedErr)
		j.triedErr = nil
	}
	if late {
		j.settled = tick
	}
	return tick, !late
}

// settle draws the conclusions from a claim and, if it was granted, its run.
func (j *jobLoop) settle(ctx context.Context, tick Tick, run tickRun) {
	var refusal *TickError
	var held *HeldError
	switch {
	case run.granted:
		j.settledUpTo(tick.At)
		j.unborn = false
		j.interrupted = time.Time{}
		if j.job.Again && run.cut && run.end.err != nil {
			j.interrupted = tick.At // and another replica's to run again, or this one's
		}
		j.cover()
	case errors.As(run.err, &refusal):
		watched := !j.interrupted.IsZero()
		j.interrupted = time.Time{}
		if !refusal.Due() {
			return // now it is known when it comes
		}
		j.settledUpTo(refusal.Last)
		j.unborn = false
		switch {
		case j.job.Again && !refusal.Done:
			j.interrupted = refusal.Last
		case watched:
			j.cover()
		}
	case !errors.As(run.err, &held):
		j.tried, j.triedErr = tick.At, run.err
		j.wait(ctx, tick, run.err)
	case j.job.Missed > 0 || !j.interrupted.IsZero():
		j.wait(ctx, tick, run.err)
	case held.Remaining <= 0: // its replica has died
		j.tried, j.triedErr = tick.At, run.err
		j.wait(ctx, tick, run.err)
	default:
		j.lease.missed(tick.At, run.err)
		j.settledUpTo(tick.At)
		if j.job.Again { // what holds it may be interrupted too
			_, _ = j.look(ctx) // an error is told, and the next tick finds out
		}
	}
}

// settledUpTo notes that tick has been claimed or given up.
func (j *jobLoop) settledUpTo(tick time.Time) {
	if tick.After(j.settled) {
		j.settled = tick
	}
	if !tick.Before(j.tried) {
		j.triedErr = nil
	}
}

// cover drops the ticks that came during a run, unless they are to be run late.
func (j *jobLoop) cover() {
	if j.job.Missed > 0 {
		return
	}
	now, _ := j.lease.databaseNow()
	if first := nextTick(j.job.Schedule, j.settled); !first.IsZero() && !first.After(now) {
		j.lease.missed(first, ErrHeld)
		j.settledUpTo(now)
	}
}

// wait waits after a claim of tick that failed with err, until the next try may
// succeed.
func (j *jobLoop) wait(ctx context.Context, tick Tick, err error) {
	d := j.lease.pause(err, j.watch.Live != nil && j.watch.Live())
	if j.job.Missed == 0 && j.interrupted.IsZero() { // the next tick is not to be late
		now, _ := j.lease.databaseNow()
		if next := nextTick(j.job.Schedule, tick.At); !next.IsZero() {
			d = max(0, min(d, next.Sub(now)))
		}
	}
	pause(ctx, d, j.watch.Wake)
}
