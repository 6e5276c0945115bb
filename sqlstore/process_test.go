//go:build linux

package sqlstore_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A process is this binary started again. It takes its orders on stdin and ends
// at the end of that, so none outlives the test.
type process struct {
	cmd *osexec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func start(t *testing.T, role string, args ...string) *process {
	t.Helper()
	exe, err := os.Executable()
	require.NoError(t, err)
	p := &process{cmd: osexec.Command(exe, args...)}
	p.cmd.Env = append(os.Environ(), roleEnv+"="+role)
	p.cmd.Stderr = os.Stderr
	p.in, err = p.cmd.StdinPipe()
	require.NoError(t, err)
	out, err := p.cmd.StdoutPipe()
	require.NoError(t, err)
	p.out = bufio.NewScanner(out)
	require.NoError(t, p.cmd.Start())
	t.Cleanup(func() {
		p.in.Close()
		p.cmd.Process.Kill() //nolint:errcheck // it has ended, unless the test failed
		p.cmd.Wait()         //nolint:errcheck // as above
	})
	return p
}

func (p *process) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Kill())
	require.Error(t, p.cmd.Wait())
}

// openFile opens the database of a process that has no *testing.T.
func openFile(path string) (*sql.DB, *sqlstore.SQLite, error) {
	db, err := sql.Open("sqlite", "file:"+path+fast)
	if err != nil {
		return nil, nil, err
	}
	s, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	return db, s, err
}

func init() {
	roles["migrator"] = migrator
	roles["replica"] = func() error { return replica(os.Args[1], os.Args[2]) }
}

// migrator migrates each database that it is told of.
func migrator() error {
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		db, s, err := openFile(in.Text())
		if err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			err = errors.Join(s.Migrate(ctx), s.Check(ctx), db.Close())
			cancel()
		}
		fmt.Println(err)
	}
	return nil
}

func TestTwelveProcessesMigrateOneDatabaseAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts processes")
	}
	var processes []*process
	for range 12 {
		processes = append(processes, start(t, "migrator"))
	}
	for range 20 {
		path := newFile(t)
		for _, p := range processes {
			_, err := fmt.Fprintln(p.in, path)
			require.NoError(t, err)
		}
		for _, p := range processes {
			require.True(t, p.out.Scan())
			require.Equal(t, "<nil>", p.out.Text())
		}
		require.NoError(t, bareStore(t, open(t, path, wal)).Check(t.Context()))
	}
}

const (
	replicaTTL    = 250 * time.Millisecond
	replicaMargin = 50 * time.Millisecond
)

// monotonic is the machine's clock that all processes share.
func monotonic() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// replica takes the lease, renews it while it makes fenced writes, and gives it
// up, again and again. A sign of life in its log is a line "token now trust".
func replica(path, log string) error {
	db, s, err := openFile(path)
	if err != nil {
		return err
	}
	defer db.Close()
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	stop, cancel := context.WithCancel(context.Background())
	go func() {
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // any end is the end
		cancel()
	}()
	for stop.Err() == nil {
		c := claim("job", replicaTTL)
		c.Holder = log
		sent := monotonic()
		ctx, done := context.WithTimeout(context.Background(), time.Second)
		g, err := s.Acquire(ctx, c)
		if err == nil {
			err = term(ctx, db, s, g, sent, out)
		}
		done()
		switch {
		case errors.Is(err, joblease.ErrHeld):
			time.Sleep(rand.N(10 * time.Millisecond)) // a candidate that polls
		case err != nil && !errors.Is(err, context.DeadlineExceeded):
			return err
		}
	}
	return nil
}

// term is what a replica does while it holds the lease.
func term(ctx context.Context, db *sql.DB, s *sqlstore.SQLite, g joblease.Grant, sent time.Duration, log io.Writer) error {
	trust := sent + replicaTTL - replicaMargin
	for range 1 + rand.N(8) {
		now := monotonic()
		if now >= trust {
			return nil
		}
		fmt.Fprintln(log, g.Token, int64(now), int64(trust))
		if err := fencedWrite(ctx, db, s, g); err != nil && (monotonic() < trust || !errors.Is(err, joblease.ErrLost)) {
			return fmt.Errorf("token %d, trusted for another %v: %w", g.Token, trust-monotonic(), err)
		}
		sent := monotonic()
		switch err := s.Renew(ctx, g); {
		case err == nil:
			trust = sent + replicaTTL - replicaMargin
		case errors.Is(err, joblease.ErrLost) && monotonic() >= trust:
			return nil
		default:
			return fmt.Errorf("token %d, trusted for another %v: %w", g.Token, trust-monotonic(), err)
		}
	}
	if now := monotonic(); now < trust {
		fmt.Fprintln(log, g.Token, int64(now), int64(trust))
	}
	if rand.N(5) == 0 {
		return nil // not released: it expires
	}
	if err := s.Release(ctx, g); !errors.Is(err, joblease.ErrLost) {
		return err
	}
	return nil
}

func fencedWrite(ctx context.Context, db *sql.DB, s *sqlstore.SQLite, g joblease.Grant) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it may have been committed
	if err := s.Fence(ctx, tx, g); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "INSERT INTO work (token) VALUES (?)", g.Token); err != nil {
		return err
	}
	return tx.Commit()
}

func TestProcessesThatAreKilledNeverHoldTheLeaseTogether(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	const replicas, kills = 4, 8
	path, logs := newFile(t), t.TempDir()
	db := open(t, path, fast)
	exec(t, db, "CREATE TABLE work (id INTEGER PRIMARY KEY AUTOINCREMENT, token INTEGER NOT NULL)")
	s := newStore(t, db)

	running := map[string]*process{}
	launch := func() {
		log := filepath.Join(logs, fmt.Sprint("replica ", len(running)))
		running[log] = start(t, "replica", path, log)
	}
	for range replicas {
		launch()
	}
	dead := map[string]bool{}
	var token int64
	for range kills {
		// The holder, as of a moment ago, once the lease has gone round some more.
		var victim string
		require.Eventually(t, func() bool {
			list, err := s.List(context.Background())
			if err != nil || len(list) == 0 || list[0].Token < token+3 || dead[list[0].Holder] {
				return false
			}
			victim, token = list[0].Holder, list[0].Token
			return victim != ""
		}, 20*time.Second, time.Millisecond)
		running[victim].kill(t)
		dead[victim] = true
		launch()
	}
	for log, p := range running {
		if !dead[log] {
			require.NoError(t, p.in.Close())
			require.NoError(t, p.cmd.Wait(), log)
		}
	}

	terms := readTerms(t, logs)
	require.Greater(t, len(terms), 3*kills)
	for i, next := range terms[1:] {
		last := terms[i]
		require.NotEqual(t, last.token, next.token, "one token was given out twice")
		require.LessOrEqual(t, last.end, next.start, "tokens %d and %d were held together", last.token, next.token)
	}
	require.LessOrEqual(t, terms[len(terms)-1].token, row(t, s).Token)
	require.Zero(t, value[int64](t, db,
		"SELECT count(*) FROM work AS a JOIN work AS b ON b.id = a.id + 1 WHERE b.token < a.token"),
		"a fenced write came after one with a newer token")
	require.Greater(t, value[int64](t, db, "SELECT count(*) FROM work"), int64(3*kills))
}

// heldTerm is one term, from its first to its last sign of life within its trust.
type heldTerm struct {
	token      int64
	start, end time.Duration
}

// readTerms returns the terms of all logs in the order of their tokens.
func readTerms(t *testing.T, logs string) (terms []heldTerm) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(logs, "*"))
	require.NoError(t, err)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var last int64
		for line := range strings.Lines(string(text)) {
			var token, now, trust int64
			if n, _ := fmt.Sscan(line, &token, &now, &trust); n != 3 || !strings.HasSuffix(line, "\n") {
				continue // cut short by the kill
			}
			if token != last {
				terms = append(terms, heldTerm{token: token, start: time.Duration(now)})
				last = token
			}
			terms[len(terms)-1].end = time.Duration(min(now, trust))
		}
	}
	slices.SortFunc(terms, func(a, b heldTerm) int { return int(a.token - b.token) })
	return terms
}
