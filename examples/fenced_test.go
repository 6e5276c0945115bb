package examples_test

import (
	"os"
	"testing"

	"github.com/joblease/joblease/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestFenced(t *testing.T) {
	t.Parallel()
	program := build(t, "fenced")
	const plot = `SIGSTOP(?s:.*)has booked it(?s:.*)SIGCONT`
	books := func(t *testing.T, args ...string) {
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program, args...)
		require.Zero(t, p.exit(t))
		requireEmpty(t, temp)
		p.await(t, plot+`(?s:.*)refused by the fence`)
		require.EqualValues(t, 1, number(t, p, `(?m)^booked +(\d+) `))
	}
	booksTwice := func(t *testing.T, args ...string) {
		p := start(t, nil, program, append(args, "-unfenced")...)
		require.Equal(t, 1, p.exit(t))
		p.await(t, plot+`(?s:.*)has booked it`)
		require.EqualValues(t, 2, number(t, p, `(?m)^booked +(\d+) `))
	}

	t.Run("books once, on SQLite", func(t *testing.T) {
		t.Parallel()
		books(t)
	})

	t.Run("books once, on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		books(t, "-database", db.URL)
		requireNoTables(t, db)
	})

	t.Run("books twice without the fence, on SQLite", func(t *testing.T) {
		t.Parallel()
		booksTwice(t)
	})

	t.Run("books twice without the fence, on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		db := pgtest.New(t)
		booksTwice(t, "-database", db.URL)
		requireNoTables(t, db)
	})

	t.Run("cleans up when it is interrupted while a replica is frozen", func(t *testing.T) {
		t.Parallel()
		temp := t.TempDir()
		p := start(t, []string{"TMPDIR=" + temp}, program)
		p.await(t, "SIGSTOP")
		require.NoError(t, p.cmd.Process.Signal(os.Interrupt))
		require.Equal(t, 1, p.exit(t))
		p.await(t, "interrupted")
		requireEmpty(t, temp)
	})
}
