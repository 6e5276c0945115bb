// Package fleet runs the replicas of a service as processes of the same program.
package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// StopTime is how long a replica may take to end before it is killed.
const StopTime = 10 * time.Second

// Fleet is the replicas, numbered from 0, as processes of this program. N is one
// piece of news from a replica.
type Fleet[N any] struct {
	News chan N // closed when no replica is left

	read      func(replica int, in *json.Decoder) (N, error)
	processes []*process
	ended     sync.WaitGroup
}

type process struct {
	cmd    *exec.Cmd
	killed bool
	err    error // how it ended
}

// Launch starts n replicas: this program with the flag -replica, which is a number
// from 1, and args. What they write to their standard output is JSON; read gets
// the next piece of news from it. When ctx ends the replicas are told to stop, and
// are killed if they do not. Also after an error the caller ends ctx and calls Wait.
func Launch[N any](ctx context.Context, n int, args func(replica int) []string,
	read func(replica int, in *json.Decoder) (N, error),
) (*Fleet[N], error) {
	// So much room that a replica never waits for this process to read.
	f := &Fleet[N]{News: make(chan N, 1024), read: read}
	defer func() {
		go func() {
			f.ended.Wait()
			close(f.News)
		}()
	}()
	self, err := os.Executable()
	if err != nil {
		return f, err
	}
	for i := range n {
		cmd := exec.CommandContext(ctx, self, append([]string{"-replica", strconv.Itoa(i + 1)}, args(i)...)...)
		cmd.Stderr = os.Stderr
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.WaitDelay = StopTime
		// Nothing is ever written to this pipe. Its end tells the replica that this
		// process is gone, however it went; Wait closes it.
		if _, err := cmd.StdinPipe(); err != nil {
			return f, err
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			return f, err
		}
		if err := cmd.Start(); err != nil {
			return f, err
		}
		f.follow(i, cmd, stdout)
	}
	return f, nil
}

// follow passes on what replica i reports, until it has ended.
func (f *Fleet[N]) follow(i int, cmd *exec.Cmd, stdout io.Reader) {
	p := &process{cmd: cmd}
	f.processes = append(f.processes, p)
	f.ended.Go(func() {
		for in := json.NewDecoder(stdout); ; {
			n, err := f.read(i, in)
			if err != nil {
				break // it has ended, perhaps in the middle of a line
			}
			f.News <- n
		}
		p.err = cmd.Wait()
	})
}

// Kill ends replica i as a crash would.
func (f *Fleet[N]) Kill(i int) error {
	f.processes[i].killed = true
	return f.processes[i].cmd.Process.Kill()
}

// Stop tells replica i to stop, as an orchestrator does before a deployment.
func (f *Fleet[N]) Stop(i int) error { return f.processes[i].cmd.Process.Signal(syscall.SIGTERM) }

// StopAll tells those that are left to stop.
func (f *Fleet[N]) StopAll() error {
	var errs []error
	for i := range f.processes {
		if err := f.Stop(i); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Wait waits until all have ended, and returns how those failed that did. News
// that nobody has read is dropped.
func (f *Fleet[N]) Wait() error {
	for range f.News {
	}
	var errs []error
	for i, p := range f.processes {
		if p.err != nil && !p.killed {
			errs = append(errs, fmt.Errorf("replica %d: %w", i+1, p.err))
		}
	}
	return errors.Join(errs...)
}
