package examples_test

import (
	"io"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/pgstore"
	"github.com/stretchr/testify/require"
)

func TestCron(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	program := build(t, "cron")
	store, err := pgstore.New(db.Pool(t), pgstore.Options{SharePool: true, DisableNotify: true})
	require.NoError(t, err)
	t.Cleanup(store.Close)
	lease := func() joblease.Record {
		list, err := store.List(t.Context())
		require.NoError(t, err)
		require.Len(t, list, 1)
		return list[0]
	}

	p := start(t, []string{"DATABASE_URL=" + db.URL}, program, "-addr", "127.0.0.1:0", "-schedule", "@every 1s")
	p.await(t, `report: the database has \d+ .* \(error: <nil>\)`)
	require.True(t, lease().Held())
	answer, err := http.Get("http://" + p.await(t, `serving on (\S+)`)[1] + "/status")
	require.NoError(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.Contains(t, string(text), `"State":"leading"`)

	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	require.Zero(t, p.exit(t))
	require.True(t, lease().Claim.IsZero(), "the lease is not released")
	require.EqualValues(t, 1, lease().Token)
}

func TestTicker(t *testing.T) {
	t.Parallel()
	program := build(t, "ticker")
	for name, where := range map[string]func(t *testing.T) string{
		"on SQLite":     func(t *testing.T) string { return filepath.Join(t.TempDir(), "with space? and 100%.db") },
		"on PostgreSQL": func(t *testing.T) string { return pgtest.New(t).URL },
	} {
		t.Run("hands over "+name, func(t *testing.T) {
			t.Parallel()
			args := []string{"-database", where(t), "-every", "50ms"}
			first := start(t, nil, program, args...)
			first.await(t, "sweeping .* token=1\n")
			second := start(t, nil, program, args...)
			second.await(t, "another replica holds the lease")
			require.NotContains(t, second.out.String(), "sweeping")

			require.NoError(t, first.cmd.Process.Signal(syscall.SIGTERM))
			require.Zero(t, first.exit(t))
			second.await(t, "sweeping .* token=2\n")
			require.NoError(t, second.cmd.Process.Signal(syscall.SIGTERM))
			require.Zero(t, second.exit(t))
		})
	}
}

func TestTenants(t *testing.T) {
	t.Parallel()
	temp := t.TempDir()
	p := start(t, []string{"TMPDIR=" + temp}, build(t, "tenants"))
	require.Zero(t, p.exit(t))
	requireEmpty(t, temp)
	for _, shown := range []string{
		`start, with six tenants\n(?:  . +leads .*\n)*  A +leads`, // the tenants spread
		`start, with six tenants\n(?:  . +leads .*\n)*  B +leads`,
		`gale is added while they run\n  [AB] +leads +gale\n`,
		`acme is removed\n(?:.*\n)*?  [AB] +releases +acme\n`,
		`A ends\n(?:.*\n)*?  B +leads`,
		`A is back, and B keeps three\n(?:.*\n)*?  A +leads`,
		`\n[1-9]\d* pieces of work done\n$`,
	} {
		p.await(t, shown)
	}
}
