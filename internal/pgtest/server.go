package pgtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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

	bin, dir string
	params   map[string]string
	cred     *syscall.Credential

	mu      sync.Mutex
	process *process // nil while stopped
}

// process is one run of a server.
type process struct {
	os   *os.Process
	done chan struct{} // closed when it has ended
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
	text, err := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text), err
}

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
	s := &Server{bin: bin, dir: dir, Socket: dir, params: opts.Params, cred: cred}
	if err := s.create(template, opts.HBA); err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// create copies the template and starts it on a port that is free.
func (s *Server) create(template, hba string) error {
	// The copy is made as the server's user, so that it owns every file.
	if err := s.command("cp", "-R", "-p", template, s.data()); err != nil {
		return err
	}
	if hba != "" {
		if err := os.WriteFile(filepath.Join(s.data(), "pg_hba.conf"), []byte(hba), 0o600); err != nil {
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

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// command runs a program as the server's user.
func (s *Server) command(name string, args ...string) error {
	return runAs(s.cred, s.dir, name, args...)
}

// parameters are the settings of every server of this package, each as
// name=value; extra ones win. A crash of the machine may eat the cluster, a
// crash of the server may not.
func parameters(extra map[string]string) []string {
	p := map[string]string{
		"fsync":              "off",
		"max_connections":    "200",
		"shared_buffers":     "32MB",
		"log_line_prefix":    logPrefix,
		"log_min_messages":   "warning",
		"lc_messages":        "C",
		"logging_collector":  "off",
		"log_destination":    "stderr",
		"autovacuum_naptime": "1h", // tests that count writes must not meet it
		"max_wal_size":       "256MB",
		"wal_level":          "replica",
	}
	for name, value := range extra {
		p[name] = value
	}
	var out []string
	for name, value := range p {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}

// start starts the server's process and waits until it is ready.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	logFile, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer logFile.Close()
	begin, err := logFile.Seek(0, 2)
	if err != nil {
		return err
	}
	args := []string{"-D", s.data(), "-p", strconv.Itoa(s.Port), "-k", s.Socket, "-c", "listen_addresses=127.0.0.1"}
	for _, p := range parameters(s.params) {
		args = append(args, "-c", p)
	}
	cmd := exec.Command(filepath.Join(s.bin, "postgres"), args...)
	cmd.Dir, cmd.Env = s.dir, environment()
	cmd.Stdout, cmd.Stderr = logFile, logFile
	cmd.SysProcAttr = attributes(s.cred)

	started, done := make(chan error), make(chan struct{})
	go func() {
		// The death signal comes when the thread that started the process ends,
		// so that thread is kept for as long as the process lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			cmd.Wait() //nolint:errcheck // the log says why it ended
		}
		close(done)
	}()
	if err := <-started; err != nil {
		return err
	}
	s.process = &process{os: cmd.Process, done: done}
	err = awaitReady(s.readyURL(), func() error {
		select {
		case <-done:
		default:
			return nil
		}
		text, err := s.readLog()
		if err != nil {
			return err
		}
		if text = text[begin:]; strings.Contains(text, "could not bind") {
			return errPort
		}
		return fmt.Errorf("the server did not start:\n%s", text)
	})
	if err != nil {
		select {
		case <-done:
			s.process = nil
		default:
		}
	}
	return err
}

// readyURL connects through the socket, where no other server can answer.
func (s *Server) readyURL() string {
	q := url.Values{"host": {s.Socket}, "port": {strconv.Itoa(s.Port)}, "user": {"postgres"}, "sslmode": {"disable"}}
	return "postgres:///postgres?" + q.Encode()
}

// stopTimeout is how long a server may take to stop before it is killed.
const stopTimeout = 20 * time.Second

func (s *Server) stop(mode StopMode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return nil
	}
	p := s.process
	s.process = nil
	if err := p.os.Signal(syscall.Signal(mode)); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(stopTimeout):
		p.os.Kill() //nolint:errcheck // it has ended then
		<-p.done
		return fmt.Errorf("the server had to be killed: it did not stop within %v", stopTimeout)
	}
}

// remove stops the server and deletes its files.
func (s *Server) remove() error {
	// Nothing in it is needed any more.
	return errors.Join(s.stop(Immediate), removeAll(s.dir))
}

