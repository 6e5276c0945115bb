package pgstore_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/internal/pgtest"
	"github.com/joblease/joblease/migrations"
	"github.com/joblease/joblease/pgstore"
)

func TestTwelveReplicasMigrateAnEmptyDatabaseAtOnce(t *testing.T) {
	const replicas, rounds = 12, 20
	db := pgtest.New(t)
	stores := make([]*pgstore.Store, replicas)
	for i := range stores {
		stores[i] = open(t, db.Pool(t), pgstore.Options{})
	}
	for range rounds {
		var wg sync.WaitGroup
		errs := make([]error, replicas)
		begin := make(chan struct{})
		for i, s := range stores {
			wg.Go(func() {
				<-begin
				errs[i] = s.Migrate(bounded(t))
			})
		}
		close(begin)
		wg.Wait()
		for _, err := range errs {
			require.NoError(t, err)
		}
		require.NoError(t, stores[0].Check(bounded(t)))
		db.Exec(t, "DROP TABLE "+migrations.Table)
	}
}

func TestTheFilesCanBeRunAsTheyAreAndMigrateAcceptsThem(t *testing.T) {
	db := pgtest.New(t)
	texts, err := migrations.Statements(migrations.Postgres(), migrations.Table)
	require.NoError(t, err)
	for _, text := range texts {
		db.Exec(t, text)
	}
	before := catalog(t, db)
	s := open(t, db.Pool(t), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	require.NoError(t, s.Migrate(bounded(t)))
	require.Equal(t, before, catalog(t, db))
}

// catalog tells the state of the table's definition.
func catalog(t *testing.T, db *pgtest.DB) string {
	return pgtest.Scan[string](t, db, `SELECT concat_ws(' ', c.xmin, (
			SELECT json_agg(row_to_json(a) ORDER BY attnum) FROM pg_attribute AS a WHERE a.attrelid = c.oid))
		FROM pg_class AS c WHERE c.oid = $1::text::regclass`, migrations.Table)
}

// A replica need not be able to create anything if the table is there.
func TestMigrateNeedsNoPrivilegeToCreateWhereTheTableIsRight(t *testing.T) {
	_, db := migrated(t, pgstore.Options{})
	user := role(t, db)
	db.Exec(t, "REVOKE CREATE ON SCHEMA public FROM PUBLIC")
	db.Exec(t, fmt.Sprintf("GRANT SELECT, INSERT, UPDATE ON %s TO %s", migrations.Table, user))
	s := open(t, poolAs(t, db, user), pgstore.Options{})
	require.NoError(t, s.Migrate(bounded(t)))
	g := acquired(t, s, "a", long)
	require.NoError(t, s.Renew(bounded(t), g))
	require.NoError(t, s.Release(bounded(t), g))

	db.Exec(t, "DROP TABLE "+migrations.Table)
	err := s.Migrate(bounded(t))
	setupError(t, err, "may not create or alter", "GRANT SELECT, INSERT, UPDATE")
	require.ErrorContains(t, err, "does not exist")
}

func TestMissingPrivilegesAreReportedWithTheGrantThatGivesThem(t *testing.T) {
	full, db := migrated(t, pgstore.Options{})
	acquired(t, full, "a", long)
	user := role(t, db)
	s := open(t, poolAs(t, db, user), pgstore.Options{})
	grant := "GRANT SELECT, INSERT, UPDATE ON"

	_, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
	setupError(t, err, "lacks privileges", grant, `"`+user+`"`)
	setupError(t, s.Renew(bounded(t), joblease.Grant{Name: "a", TTL: long}), "lacks privileges", grant)
	setupError(t, s.Check(bounded(t)), "SELECT, INSERT, UPDATE", grant)

	db.Exec(t, fmt.Sprintf("GRANT SELECT, INSERT ON %s TO %s", migrations.Table, user))
	setupError(t, s.Check(bounded(t)), "UPDATE", "GRANT UPDATE ON")
	db.Exec(t, fmt.Sprintf("GRANT UPDATE ON %s TO %s", migrations.Table, user))
	require.NoError(t, s.Check(bounded(t)))
	_, err = s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
	require.ErrorIs(t, err, joblease.ErrHeld)

	hidden := open(t, poolAs(t, db, user), pgstore.Options{Schema: "hidden"})
	db.Exec(t, "CREATE SCHEMA hidden")
	setupError(t, hidden.Check(bounded(t)), "lacks privileges", "GRANT USAGE")
}

func TestAMissingTableIsSaidAndHealsWhenItIsCreated(t *testing.T) {
	db := pgtest.New(t)
	for _, opts := range []pgstore.Options{{}, {Schema: "public", Table: "t"}, {Schema: "later"}} {
		s := open(t, db.Pool(t), opts)
		_, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
		setupError(t, err, "does not exist", "Store.Migrate", "migrations/postgres")
		setupError(t, s.Renew(bounded(t), joblease.Grant{Name: "a", TTL: long}), "does not exist")
		setupError(t, s.Release(bounded(t), joblease.Grant{Name: "a"}), "does not exist")
		setupError(t, s.Check(bounded(t)), "does not exist")
		_, err = s.List(bounded(t))
		setupError(t, err, "does not exist")

		if opts.Schema == "later" {
			require.Error(t, s.Migrate(bounded(t)), "a schema is not the store's to create")
			db.Exec(t, "CREATE SCHEMA later")
		}
		require.NoError(t, s.Migrate(bounded(t)))
		acquired(t, s, "a", long)
	}
}

func TestCheckReportsATableThatWouldNotKeepThePromises(t *testing.T) {
	for _, c := range []struct {
		name, alter string
		says        []string
	}{
		{"unlogged", "ALTER TABLE joblease_leases SET UNLOGGED", []string{"unlogged", "SET LOGGED"}},
		{"no time zone", "ALTER TABLE joblease_leases ALTER COLUMN expires_at TYPE timestamp",
			[]string{"expires_at", "without time zone", "ALTER COLUMN expires_at TYPE timestamp with time zone"}},
		{"an older version", "ALTER TABLE joblease_leases DROP COLUMN version", []string{"no column version", "Store.Migrate"}},
		{"another type", "ALTER TABLE joblease_leases ALTER COLUMN token TYPE numeric(9, 2)",
			[]string{"token", "numeric(9,2)", "bigint"}},
		{"no primary key", "ALTER TABLE joblease_leases DROP CONSTRAINT joblease_leases_pkey",
			[]string{"no primary key", "ADD PRIMARY KEY (name)"}},
		{"a partial index", `ALTER TABLE joblease_leases DROP CONSTRAINT joblease_leases_pkey;
			CREATE UNIQUE INDEX ON joblease_leases (name) WHERE claim IS NOT NULL`, []string{"no primary key"}},
		{"a view", "ALTER TABLE joblease_leases RENAME TO t; CREATE VIEW joblease_leases AS SELECT * FROM t",
			[]string{"not a plain table"}},
		{"all at once", "DROP TABLE joblease_leases; CREATE UNLOGGED TABLE joblease_leases (name text)",
			[]string{"unlogged", "no primary key", "no column claim", "no column tick_done"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, db := migrated(t, pgstore.Options{})
			conn := db.Conn(t)
			_, err := conn.PgConn().Exec(bounded(t), c.alter).ReadAll()
			require.NoError(t, err)
			before := pgtest.Scan[uint64](t, db, nextXID)
			setupError(t, s.Check(bounded(t)), c.says...)
			require.Equal(t, before, pgtest.Scan[uint64](t, db, nextXID), "Check writes nothing")
			require.Error(t, s.Migrate(bounded(t)), "it is not said to be right")
		})
	}
}

func TestATableOfAnotherVersionIsNeverTakenForARefusal(t *testing.T) {
	for _, alter := range []string{
		"ALTER TABLE joblease_leases DROP COLUMN version",
		"ALTER TABLE joblease_leases ALTER COLUMN claim TYPE text",
		"ALTER TABLE joblease_leases DROP CONSTRAINT joblease_leases_pkey",
	} {
		s, db := migrated(t, pgstore.Options{})
		db.Exec(t, alter)
		_, err := s.Acquire(bounded(t), claim("a", long, joblease.TakeExpired))
		setupError(t, err, "not as this version needs it", "Store.Check")
	}
}

func TestTablesWithNamesThatNeedQuotingAreKeptApart(t *testing.T) {
	odd := []string{
		"Leases", "leases", "select", "a b", `quo"te`, "semi;colon--", "new\nline", "$1", "%s", "päckchen", "a.b",
		strings.Repeat("é", 31) + "x", migrations.Table,
	}
	db := pgtest.New(t)
	var stores []*pgstore.Store
	for i, name := range odd {
		stores = append(stores, open(t, db.Pool(t), pgstore.Options{Table: name, DisableNotify: true}))
		if i%3 == 0 {
			db.Exec(t, "CREATE SCHEMA "+pgx.Identifier{name}.Sanitize())
			stores = append(stores, open(t, db.Pool(t), pgstore.Options{Table: name, Schema: name, DisableNotify: true}))
		}
	}
	for i, s := range stores {
		require.NoError(t, s.Migrate(bounded(t)))
		require.NoError(t, s.Check(bounded(t)))
		g := acquired(t, s, "the same name", long)
		require.EqualValues(t, 1, g.Token, "table %d is another's", i)
		require.NoError(t, s.Renew(bounded(t), g))
	}
	for _, s := range stores {
		records, err := s.List(bounded(t))
		require.NoError(t, err)
		require.Len(t, records, 1)
	}
}

// role creates a user without privileges and returns its name.
func role(t *testing.T, db *pgtest.DB) string {
	t.Helper()
	name := db.Name + "user"
	db.Exec(t, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD 'pgtest'", name))
	t.Cleanup(func() {
		db.Exec(t, fmt.Sprintf("DROP OWNED BY %s; DROP ROLE %[1]s", name), pgx.QueryExecModeSimpleProtocol)
	})
	return name
}

// setupError requires err to be a *joblease.SetupError that says all of says,
// and not to be one of the two decisions.
func setupError(t *testing.T, err error, says ...string) {
	t.Helper()
	var setup *joblease.SetupError
	require.ErrorAs(t, err, &setup)
	require.NotErrorIs(t, err, joblease.ErrHeld)
	require.NotErrorIs(t, err, joblease.ErrLost)
	require.False(t, slices.ContainsFunc(says, func(s string) bool { return !strings.Contains(err.Error(), s) }),
		"%q says not all of %q", err, says)
	require.NotEmpty(t, setup.Remedy)
}
