package pgstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// command is one statement with its parameters.
type command struct {
	op   string // for messages
	name string // of the lease, for messages; empty if there is none
	sql  string
	args [][]byte // in text format
	// again says that the statement has the same outcome when it is sent twice.
	again bool
}

// errClosed is the error of every call on a closed store.
var errClosed = errors.New("joblease: the store is closed")

// bound gives a call a deadline if it has none, and an end when the store is
// closed.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	var cancel context.CancelFunc
	if _, ok := ctx.Deadline(); ok {
		ctx, cancel = context.WithCancel(ctx)
	} else {
		ctx, cancel = context.WithTimeout(ctx, defaultCallTimeout)
	}
	stop := context.AfterFunc(s.closed, cancel)
	return ctx, func() { stop(); cancel() }
}

// call carries out cmd. ctx has a deadline.
//
// It tries again, inside the deadline, where that is the right answer to an
// error: when the server refused to serialize the transaction, which says that
// nothing was done, and when the connection turned out to be dead. All idle
// connections may be, after a restart of the server.
func (s *Store) call(ctx context.Context, cmd command) (*pgconn.Result, error) {
	var (
		wait   pause
		broken error // what became of the first connection that broke in use
		tries  int
	)
	for {
		if s.closed.Err() != nil {
			return nil, errClosed
		}
		r, usable, err := s.send(ctx, cmd)
		switch {
		case err == nil:
			return r, nil
		case ctx.Err() != nil:
		case isRetryable(err):
			if wait.sleep(ctx) == nil {
				continue
			}
		case !usable && (cmd.again || pgconn.SafeToRetry(err)) && tries < ownConns:
			tries++
			broken = err
			continue
		}
		if s.closed.Err() != nil {
			return nil, errClosed
		}
		if broken != nil && ctx.Err() == nil {
			err = errors.Join(err, broken)
		}
		return nil, s.explain(cmd, err)
	}
}

// send carries out cmd once, in one round trip. usable reports whether an error
// left the connection fit for use; it is true if there was no connection at all.
func (s *Store) send(ctx context.Context, cmd command) (r *pgconn.Result, usable bool, err error) {
	deadline, _ := ctx.Deadline()
	conn, err := s.pool.Acquire(context.WithValue(ctx, timeLeft{}, time.Until(deadline)))
	if err != nil {
		if in := s.pool.Stat(); ctx.Err() != nil && in.AcquiredConns() >= in.MaxConns() {
			err = fmt.Errorf("no connection of the pool became free, all %d are in use: %w", in.MaxConns(), err)
		}
		return nil, true, err
	}
	// Unnamed statements with parameters in text: nothing is prepared, neither
	// here nor on the server, and it does not matter what mode and which types
	// the caller has configured. Up to the Sync at its end the batch is one
	// transaction.
	var batch pgconn.Batch
	batch.ExecParams(s.sql.bound, [][]byte{serverTimeout(ctx)}, nil, nil, nil)
	batch.ExecParams(cmd.sql, cmd.args, nil, nil, nil)
	results, err := conn.Conn().PgConn().ExecBatch(ctx, &batch).ReadAll()
	usable = !conn.Conn().IsClosed()
	if !usable || isReadOnly(err) {
		// A server that has become read-only is a standby now, and the same
		// address may lead to the new primary.
		s.discard(conn)
	} else {
		conn.Release()
	}
	if err != nil {
		return nil, usable, err
	}
	if len(results) != 2 {
		return nil, usable, fmt.Errorf("%d results instead of 2", len(results))
	}
	return results[1], usable, nil
}

// serverTimeout is how long the server may take for a statement, in
// milliseconds: what is left of ctx, less what its answer needs to get here. A
// connection whose call ends without an answer is of no more use.
func serverTimeout(ctx context.Context) []byte {
	deadline, _ := ctx.Deadline()
	left := time.Until(deadline)
	left -= min(left/10, 250*time.Millisecond)
	return integer(max(left.Milliseconds(), 1)) // 0 would mean no limit
}

// discard takes a connection out of the pool and closes it.
func (s *Store) discard(conn *pgxpool.Conn) {
	if !s.own {
		closeConn(conn.Conn().PgConn())
		conn.Release() // closed, so that the pool drops it
		return
	}
	// The pool keeps the place of a broken connection occupied until the
	// connection is closed in good order, which takes 15 s where the network
	// swallows everything. Two of those, and there is no place for a renewal.
	s.wg.Add(1)
	c := conn.Hijack().PgConn()
	go func() {
		defer s.wg.Done()
		closeConn(c)
		select {
		case <-c.CleanupDone():
		case <-s.closed.Done():
			c.Conn().Close() //nolint:errcheck // whatever it says, the connection is of no more use
		}
	}()
}

// closeConn tells the server that the connection ends, if it can be told at
// once.
func closeConn(c *pgconn.PgConn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Close(ctx) //nolint:errcheck // whatever it says, the connection is of no more use
}

// pause is the time between two tries. It grows, and is random, so that two
// that got in each other's way do not do so again.
type pause time.Duration

const (
	firstPause = pause(time.Millisecond)
	maxPause   = pause(100 * time.Millisecond)
)

// sleep waits for a while, or until ctx ends.
func (p *pause) sleep(ctx context.Context) error {
	*p = min(max(2**p, firstPause), maxPause)
	t := time.NewTimer(rand.N(time.Duration(*p)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}
