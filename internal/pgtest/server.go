package pgtest

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
)

// Options of a server of a test's own. The zero value works.
type Options struct {
	// Params are configuration parameters, as in postgresql.conf.
	Params map[string]string
	// HBA is the content of pg_hba.conf. The default trusts everybody.
	HBA string
	// Bin is the folder of the programs. The default is found as for [New].
	Bin string
}

// StopMode is how a server is told to stop.
type StopMode syscall.Signal

// The modes of the PostgreSQL manual, "Shutting Down the Server".
const (
	// Smart waits until all sessions have ended.
	Smart = StopMode(syscall.SIGTERM)
	// Fast ends all sessions and writes a checkpoint.
	Fast = StopMode(syscall.SIGINT)
	// Immediate ends all processes at once. The next start recovers as from a crash.
	Immediate = StopMode(syscall.SIGQUIT)
)

// Server is a PostgreSQL server of a test's own, made from the programs of this
// machine.
type Server struct {
	// URL connects to its database postgres as the superuser postgres.
	URL string
	// Port on 127.0.0.1. It stays the same over restarts.
	Port int
	// Socket is the folder of its Unix socket.
	Socket string
	// Data is its data folder.
	Data string

	bin, dir string
	params   map[string]string
	cred     *syscall.Credential

	mu      sync.Mutex
	process *process // nil while stopped
}

// StartServer starts a server for the test alone and stops it, and deletes its
// files, when the test ends. The test is skipped under -short, and also where
// there are no programs to start a server from.
func StartServer(t testing.TB, opts Options) *Server {
	t.Helper()
	skipShort(t)
	s, err := startLocal(opts)
	if errors.Is(err, errAbsent) {
		t.Skipf("pgtest: a server of the test's own needs PostgreSQL's programs: %v", err)
	}
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the server's log:\n%s", s.Log(t))
		}
		if err := s.remove(); err != nil {
			t.Errorf("pgtest: stopping the server: %v", err)
		}
	})
	return s
}

// NewDB creates a database for the test on s. An empty name picks one.
func (s *Server) NewDB(t testing.TB, name string) *DB {
	t.Helper()
	return newDB(t, s.instance(), name)
}

// Stop stops the server and waits until it has ended. It fails the test if the
// server does not stop. Stopping a stopped server does nothing.
func (s *Server) Stop(t testing.TB, mode StopMode) {
	t.Helper()
	if err := s.stop(mode); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}

// Start starts a stopped server and waits until it accepts connections.
func (s *Server) Start(t testing.TB) {
	t.Helper()
	if err := s.start(); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
}

// Restart stops the server and starts it again.
func (s *Server) Restart(t testing.TB, mode StopMode) {
	t.Helper()
	s.Stop(t, mode)
	s.Start(t)
}

// Demote restarts the server as a hot standby without a primary: it can be read
// and not written until it is promoted with pg_promote().
func (s *Server) Demote(t testing.TB) {
	t.Helper()
	s.Stop(t, Fast)
	if err := os.WriteFile(filepath.Join(s.Data, "standby.signal"), nil, 0o644); err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	s.Start(t)
}

// Log returns what the server has logged since it was made.
func (s *Server) Log(t testing.TB) string {
	t.Helper()
	text, err := s.readLog()
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	return text
}

func (s *Server) readLog() (string, error) {
	text, err := os.ReadFile(s.logFile())
	return string(text), err
}

func (s *Server) logFile() string { return filepath.Join(s.dir, "log") }

func (s *Server) instance() *instance {
	return &instance{url: s.URL, log: s.readLog, stop: s.remove}
}

// errPort means that another process has taken the port since it was free.
var errPort = errors.New("the port is taken")

// startLocal makes a cluster and starts it.
func startLocal(opts Options) (*Server, error) {
	bin := opts.Bin
	if bin == "" {
		var err error
		if bin, err = binaries(); err != nil {
			return nil, err
		}
	}
	cred, err := credential()
	if err != nil {
		return nil, err
	}
	template, err := templateCluster(bin, cred)
	if err != nil {
		return nil, err
	}
	dir, err := tempDir(cred)
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, dir: dir, Socket: dir, Data: filepath.Join(dir, "data"), params: opts.Params, cred: cred}
	if err := s.create(template, opts.HBA); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// create copies the template and starts it on a port that is free.
func (s *Server) create(template, hba string) error {
	// The copy is made as the server's user, so that it owns every file.
	if err := runAs(s.cred, s.dir, "cp", "-R", "-p", template, s.Data); err != nil {
		return err
	}
	if hba != "" {
		if err := os.WriteFile(filepath.Join(s.Data, "pg_hba.conf"), []byte(hba), 0o600); err != nil {
			return err
		}
	}
	for try := 0; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.Port = port
		s.URL = (&url.URL{
			Scheme: "postgres", User: url.User("postgres"), Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
			Path: "/postgres", RawQuery: "sslmode=disable",
		}).String()
		// Between looking for a free port and binding it, another may take it.
		if err := s.start(); !errors.Is(err, errPort) || try == 10 {
			return err
		}
	}
}

// remove stops the server and deletes its files.
func (s *Server) remove() error {
	// Nothing in it is needed any more.
	return errors.Join(s.stop(Immediate), removeAll(s.dir))
}
