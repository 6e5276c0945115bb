package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// envPgBouncer names the program, if it is not on the PATH.
const envPgBouncer = "JOBLEASE_PGBOUNCER"

// PgBouncer starts a PgBouncer in transaction mode in front of the database,
// for the test alone, and returns the database's URL through it. The test is
// skipped where there is no such program.
func PgBouncer(t testing.TB, db *DB) string {
	t.Helper()
	program := os.Getenv(envPgBouncer)
	if program == "" {
		var err error
		for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
			if program, err = exec.LookPath(name); err == nil {
				break
			}
		}
		if err != nil {
			t.Skipf("pgtest: no pgbouncer on the PATH or in %s", envPgBouncer)
		}
	}
	fail := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("pgtest: pgbouncer: %v", err)
		}
	}
	cred, err := credential() // like the server it refuses to run as root
	fail(err)
	dir, err := tempDir(cred)
	fail(err)
	t.Cleanup(func() {
		if err := removeAll(dir); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	server := db.Config(t).ConnConfig
	password := cmp.Or(server.Password, "none") // it refuses an empty one
	config, log := filepath.Join(dir, "pgbouncer.ini"), filepath.Join(dir, "log")
	for try := 0; ; try++ {
		port, err := freePort()
		fail(err)
		fail(os.WriteFile(config, fmt.Appendf(nil, `[databases]
%[1]s = host=%[2]s port=%[3]d dbname=%[1]s user=%[4]s password=%[5]s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %[6]d
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, db.Name, server.Host, server.Port, server.User, password, port), 0o644))
		u, err := url.Parse(db.URL)
		fail(err)
		u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		p, err := launch(log, dir, cred, program, config)
		fail(err)
		t.Cleanup(p.kill)
		err = awaitReady(u.String(), func() error {
			if !p.ended() {
				return nil
			}
			text, err := os.ReadFile(log)
			if strings.Contains(string(text), "in use") {
				return errPort
			}
			return errors.Join(fmt.Errorf("it did not start:\n%s", text), err)
		})
		if errors.Is(err, errPort) && try < 10 {
			fail(os.Remove(log))
			continue
		}
		fail(err)
		return u.String()
	}
}
