// Package pgtest gives tests a real PostgreSQL.
//
// The server is found in this order: the one at the URL in
// JOBLEASE_POSTGRES_URL; a throw-away cluster made by PostgreSQL programs on
// this machine (in JOBLEASE_POSTGRES_BIN, on the PATH, or where Debian, Red Hat
// and Homebrew put them); a container of the image in JOBLEASE_POSTGRES_IMAGE
// through testcontainers. JOBLEASE_TEST_DATABASE set to url, local or
// testcontainers allows that one way only.
//
// A test binary has one server, started by the first test that needs one:
//
//	func TestMain(m *testing.M) { pgtest.Main(m) }
//
//	func TestSomething(t *testing.T) {
//		pool := pgtest.New(t).Pool(t)
//		...
//	}
//
// Tests that stop, restart or configure a server have one of their own, from
// [StartServer].
package pgtest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// callTimeout bounds each call of this package to a server. A test that waits
// longer has met a server that hangs.
const callTimeout = 30 * time.Second

// instance is a server as the tests of a binary share it.
type instance struct {
	url  string                 // of its database postgres, as a superuser
	log  func() (string, error) // what it has logged; nil if it cannot be read
	stop func() error
}

// shared is the server of this test binary.
var shared struct {
	once sync.Once
	inst *instance
	err  error
}

// Main runs the tests of a binary and ends the process, after stopping the
// server if a test had one started.
func Main(m *testing.M) {
	code := m.Run()
	// Taking the once makes sure that no server starts from here on.
	shared.once.Do(func() { shared.err = errors.New("the tests are over") })
	if shared.inst != nil {
		if err := shared.inst.stop(); err != nil {
			fmt.Fprintln(os.Stderr, "pgtest: stopping the server:", err)
			code = max(code, 1)
		}
	}
	if err := removeTemplate(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// execute runs one statement on a connection of its own.
func execute(url, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.RuntimeParams["application_name"] = adminName
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

// awaitReady waits until the server at url accepts connections, or failed
// returns an error.
func awaitReady(url string, failed func() error) error {
	ctx, cancel := context.WithTimeout(context.Background(), callTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		if ferr := failed(); ferr != nil {
			return ferr
		}
		// PostgreSQL tells nobody that it is ready but those who ask.
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server is not ready after %v: %w", callTimeout, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// withDatabase returns the URL of another database of the same server.
func withDatabase(server, name string) string {
	u, err := url.Parse(server)
	if err != nil {
		panic(err) // find and StartServer checked it
	}
	u.Path, u.RawPath = "/"+name, ""
	return u.String()
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never returns an error: it ends the process instead
	return hex.EncodeToString(b)
}
