package examples_test

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/joblease/joblease/internal/pgtest"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// patience is how long a program may take to do what it is waited for.
const patience = 30 * time.Second

// build returns the program of an example.
func build(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name)
	args := []string{"build", "-o", program}
	// Under the race detector as this test is.
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "./"+name)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

// process is a program that runs.
type process struct {
	cmd  *exec.Cmd
	out  output
	done chan struct{} // closed when it has ended and nobody writes to its output
}

// start runs a program. It is killed at the end of the test.
func start(t *testing.T, env []string, program string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program, args...), done: make(chan struct{})}
	p.cmd.Env = append(p.cmd.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	require.NoError(t, p.cmd.Start())
	go func() {
		defer close(p.done)
		// Also waits until the processes that it has started have closed the pipe
		// that they share. The exit status stays in p.cmd.
		p.cmd.Wait() //nolint:errcheck // see above
	}()
	t.Cleanup(func() {
		p.cmd.Process.Kill() //nolint:errcheck // it may have ended
		<-p.done
		if t.Failed() {
			t.Logf("%v\n%s", p.cmd.Args, p.out.String())
		}
	})
	return p
}

// await waits until the program has written something that matches.
func (p *process) await(t *testing.T, pattern string) []string {
	t.Helper()
	expr, limit := regexp.MustCompile(pattern), time.After(patience)
	for {
		text, more := p.out.now()
		if match := expr.FindStringSubmatch(text); match != nil {
			return match
		}
		select {
		case <-more:
		case <-p.done:
			require.Regexp(t, expr, p.out.String(), "it has ended")
		case <-limit:
			require.Regexp(t, expr, text, "it has not been written in %v", patience)
		}
	}
}

// exit waits until the program has ended, and with it all that it has started,
// and returns its status.
func (p *process) exit(t *testing.T) int {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(2 * patience):
		require.Fail(t, "the program, or one that it has started, does not end")
	}
	return p.cmd.ProcessState.ExitCode()
}

// output collects what a process writes.
type output struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	more chan struct{} // closed at the next write
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more != nil {
		close(o.more)
		o.more = nil
	}
	return o.buf.Write(b)
}

func (o *output) now() (string, <-chan struct{}) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.more == nil {
		o.more = make(chan struct{})
	}
	return o.buf.String(), o.more
}

func (o *output) String() string {
	text, _ := o.now()
	return text
}
