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
	args := []string{"-D", s.Data, "-p", strconv.Itoa(s.Port), "-k", s.Socket, "-c", "listen_addresses=127.0.0.1"}
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
