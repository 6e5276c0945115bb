//go:build unix

package interop_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/sqlstore"
	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/require"
)

const frozenTTL = 300 * time.Millisecond

// frozenReplica is what the other process does: cron under a supervisor, with a
// job behind the gate. It tells each run, and the end of each term.
func frozenReplica(file string) error {
	db, err := sqlite(file)
	if err != nil {
		return err
	}
	store, err := sqlstore.NewSQLite(db, sqlstore.Options{})
	if err != nil {
		return err
	}
	c := cron.New()
	var inner = joblease.Cron(c)
	sup, err := joblease.NewSupervisor(store, "job", joblease.Func(func(ctx context.Context) error {
		err := inner.Run(ctx)
		fmt.Println("stopped")
		return err
	}), quiet("frozen", frozenTTL))
	if err != nil {
		return err
	}
	// Many jobs, each due when the process wakes.
	for range 10 {
		c.Schedule(each(20*time.Millisecond), cron.FuncJob(sup.Gate(func(ctx context.Context) {
			g, _ := joblease.GrantFrom(ctx)
			fmt.Println("ran", g.Token)
		})))
	}
	return sup.Run(context.Background())
}

func TestAReplicaThatWakesFromAFreezeRunsNothingThatIsOverdue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "app.db")
	store, _ := openSQLite(t, file)
	exe, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), fileEnv+"="+file)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 10_000) // more than the process can print here
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			lines <- s.Text()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		for range lines {
		}
		_ = cmd.Wait()
	})
	for range 50 {
		next(t, lines)
	}

	require.NoError(t, cmd.Process.Signal(syscall.SIGSTOP))
	// The lease is taken here as soon as it has expired, and kept.
	l, err := joblease.New(store, "job", quiet("taker", time.Hour))
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	g, err := l.Acquire(ctx)
	require.NoError(t, err)
	require.Equal(t, int64(2), g.Token)
	for len(lines) > 0 { // printed before the freeze
		next(t, lines)
	}
	require.NoError(t, cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "stopped", next(t, lines), "nothing ran between the waking and the stop")
	require.NoError(t, l.Release(ctx))
	for range 50 {
		require.Equal(t, "ran 3", strings.TrimSpace(next(t, lines)))
	}
}

func next(t *testing.T, lines <-chan string) string {
	t.Helper()
	select {
	case line, ok := <-lines:
		require.True(t, ok, "the process has ended")
		return line
	case <-time.After(patience):
		require.FailNow(t, "the process prints nothing")
		return ""
	}
}
