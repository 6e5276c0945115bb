package examples_test

import (
	"os"
	"testing"

	"github.com/joblease/joblease/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestTicks(t *testing.T) {
	t.Parallel()
	program := build(t, "ticks")
	run := func(t *testing.T, args ...string) {
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program, args...)
		require.Zero(t, p.exit(t))
		requireEmpty(t, temp)
		require.GreaterOrEqual(t, number(t, p, `(?m)^ticks run +(\d+)$`), 7.0)
		require.Zero(t, number(t, p, `(?m)^doubled +(\d+) `))
		require.GreaterOrEqual(t, number(t, p, `(?m)^run again +(\d+) `), 1.0)
		require.Zero(t, number(t, p, `(?m)^missed +(\d+) +of bill`))
		p.await(t, "SIGKILL(?s:.*)SIGKILL(?s:.*)bill again")
		require.NotContains(t, p.out.String(), "TWICE")
	}

	t.Run("each runs on one replica through two kills, on SQLite", func(t *testing.T) {
		t.Parallel()
		run(t)
	})

	t.Run("each runs on one replica through two kills, on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		run(t, "-database", db.URL)
		requireNoTables(t, db)
	})

	t.Run("cleans up when it is interrupted", func(t *testing.T) {
		t.Parallel()
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program)
		p.await(t, " sweep")
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 1, p.exit(t))
		p.await(t, "interrupted")
		requireEmpty(t, temp)
	})
}
