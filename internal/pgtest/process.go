package pgtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is one run of a server.
type process struct {
	os   *os.Process
	done chan struct{} // closed when it has ended
}

// launch starts a program that runs until it is told to stop, or this process
// is gone. What it prints goes to the end of a file.
func launch(log, dir string, cred *syscall.Credential, name string, args ...string) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, environment()
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = attributes(cred)

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
		return nil, err
	}
	return &process{os: cmd.Process, done: done}, nil
}

// ended reports whether the process has.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process.
func (p *process) kill() {
	p.os.Kill() //nolint:errcheck // it has ended then
	<-p.done
}

// start starts the server's process and waits until it is ready.
func (s *Server) start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return nil
	}
	before, err := s.readLog()
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	args := []string{"-D", s.Data, "-p", strconv.Itoa(s.Port), "-k", s.Socket, "-c", "listen_addresses=127.0.0.1"}
	for _, p := range parameters(s.params) {
		args = append(args, "-c", p)
	}
	p, err := launch(s.logFile(), s.dir, s.cred, filepath.Join(s.bin, "postgres"), args...)
	if err != nil {
		return err
	}
	s.process = p
	err = awaitReady(s.readyURL(), func() error {
		if !p.ended() {
			return nil
		}
		text, err := s.readLog()
		if err != nil {
			return err
		}
		if text = text[len(before):]; strings.Contains(text, "could not bind") {
			return errPort
		}
		return fmt.Errorf("the server did not start:\n%s", text)
	})
	if err != nil && p.ended() {
		s.process = nil
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
		p.kill()
		return fmt.Errorf("the server had to be killed: it did not stop within %v", stopTimeout)
	}
}
