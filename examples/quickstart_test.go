package examples_test

import (
	"os"
	"strconv"
	"syscall"
	"testing"

	"github.com/joblease/joblease/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestQuickstart(t *testing.T) {
	t.Parallel()
	program := build(t, "quickstart")

	t.Run("runs each tick once through a kill and a stop, on SQLite", func(t *testing.T) {
		t.Parallel()
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program)
		require.Zero(t, p.exit(t))
		checkSummary(t, p)
		requireEmpty(t, temp)
	})

	t.Run("runs each tick once through a kill and a stop, on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		p := start(t, nil, program, "-database", db.URL)
		require.Zero(t, p.exit(t))
		checkSummary(t, p)
		requireNoTables(t, db)
	})

	t.Run("fails when ticks run twice", func(t *testing.T) {
		t.Parallel()
		p := start(t, nil, program, "-unguarded")
		require.Equal(t, 1, p.exit(t))
		require.NotZero(t, number(t, p, `(?m)^doubled +(\d+)`))
	})

	t.Run("cleans up when it is interrupted", func(t *testing.T) {
		t.Parallel()
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program)
		p.await(t, "runs")
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 1, p.exit(t))
		p.await(t, "interrupted")
		requireEmpty(t, temp)
	})

	t.Run("replicas end with the program that started them", func(t *testing.T) {
		t.Parallel()
		p := start(t, []string{"TMPDIR=" + t.TempDir()}, program)
		p.await(t, "runs")
		require.NoError(t, p.cmd.Process.Signal(syscall.SIGKILL))
		require.Equal(t, -1, p.exit(t))
	})

	t.Run("tells once that the database cannot be reached", func(t *testing.T) {
		t.Parallel()
		p := start(t, nil, program, "-database", "postgres://nobody@127.0.0.1:1/none?connect_timeout=5")
		require.Equal(t, 1, p.exit(t))
		require.NotContains(t, p.out.String(), "replica")
	})
}

// checkSummary checks the numbers that are promised.
func checkSummary(t *testing.T, p *process) {
	t.Helper()
	require.GreaterOrEqual(t, number(t, p, `(?m)^ticks run +(\d+)$`), 9.0)
	require.Zero(t, number(t, p, `(?m)^doubled +(\d+) `))
	require.Zero(t, number(t, p, `(?m)^overlapped +(\d+) `))
	// A margin for machines that are busy with other tests.
	const ttl, busy = 3.0, 3.0
	require.Less(t, number(t, p, `(?m)^takeover +([\d.]+) s `), ttl+busy)
	require.Less(t, number(t, p, `(?m)^handover +([\d.]+) s `), busy)
	p.await(t, "SIGKILL(?s:.*)SIGTERM(?s:.*)No tick ran twice")
	// In the order in which it is heard of, which may not be that of the instants.
	p.await(t, "SIGTERM(?s:.*)finishes")
	p.await(t, "SIGTERM(?s:.*)releases")
	p.await(t, "SIGTERM(?s:.*)leads")
	require.NotContains(t, p.out.String(), "\x1b", "there is no terminal to show colours")
}

// number returns the number that the pattern matches in the output.
func number(t *testing.T, p *process, pattern string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(p.await(t, pattern)[1], 64)
	require.NoError(t, err)
	return n
}

func requireEmpty(t *testing.T, dir string) {
	t.Helper()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}

func requireNoTables(t *testing.T, db *pgtest.DB) {
	t.Helper()
	require.Zero(t, pgtest.Scan[int](t, db, "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"),
		"a table is left behind")
}
