package main

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

// stopTime is how long a replica may take to end before it is killed.
const stopTime = 10 * time.Second

// news is what one replica has reported.
type news struct {
	replica int // from 0
	report
}

// fleet is the replicas, as processes of this program.
type fleet struct {
	news chan news // closed when no replica is left

	processes []*process
	ended     sync.WaitGroup
}

type process struct {
	cmd    *exec.Cmd
	killed bool
	err    error // how it ended
}

// launch starts n replicas. When ctx ends they are told to stop, and are killed
// if they do not. args are the flags of the replica with that number. Also after
// an error the caller ends ctx and calls wait.
func launch(ctx context.Context, n int, args func(i int) []string) (*fleet, error) {
	// So much room that a replica never waits for this process to read.
	f := &fleet{news: make(chan news, 1024)}
	defer func() {
		go func() {
			f.ended.Wait()
			close(f.news)
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
		cmd.WaitDelay = stopTime
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
func (f *fleet) follow(i int, cmd *exec.Cmd, stdout io.Reader) {
	p := &process{cmd: cmd}
	f.processes = append(f.processes, p)
	f.ended.Go(func() {
		for in := json.NewDecoder(stdout); ; {
			var r report
			if in.Decode(&r) != nil {
				break // it has ended, perhaps in the middle of a line
			}
			f.news <- news{i, r}
		}
		p.err = cmd.Wait()
	})
}

// kill ends replica i as a crash would.
func (f *fleet) kill(i int) error {
	f.processes[i].killed = true
	return f.processes[i].cmd.Process.Kill()
}

// stop tells replica i to stop, as an orchestrator does before a deployment.
func (f *fleet) stop(i int) error { return f.processes[i].cmd.Process.Signal(syscall.SIGTERM) }

// stopAll tells those that are left to stop.
func (f *fleet) stopAll() error {
	var errs []error
	for i := range f.processes {
		if err := f.stop(i); !errors.Is(err, os.ErrProcessDone) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// wait waits until all have ended, and returns how those failed that did. News
// that nobody has read is dropped.
func (f *fleet) wait() error {
	for range f.news {
	}
	var errs []error
	for i, p := range f.processes {
		if p.err != nil && !p.killed {
			errs = append(errs, fmt.Errorf("replica %d: %w", i+1, p.err))
		}
	}
	return errors.Join(errs...)
}
