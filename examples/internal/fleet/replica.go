package fleet

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// Signals returns a context that ends when the program is to end. The end of the
// terminal (SIGHUP) and of whoever reads the output (SIGPIPE) are such signals too:
// there are replicas to stop then, and things to clean up.
func Signals() (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	context.AfterFunc(ctx, stop) // a second ctrl-C ends the program at once
	return ctx, stop
}

// Reporter is how a replica tells news to the program that started it. It is safe
// for concurrent use.
type Reporter struct {
	mu  sync.Mutex
	out *json.Encoder
}

// Join makes this process a replica: the context that it returns ends with ctx, or
// when the program that started this one is gone.
func Join(ctx context.Context) (context.Context, *Reporter) {
	ctx, cancel := context.WithCancel(ctx)
	go func() { // ends with the process
		io.Copy(io.Discard, os.Stdin) //nolint:errcheck // the end is all that matters
		cancel()
	}()
	return ctx, &Reporter{out: json.NewEncoder(os.Stdout)}
}

// Report tells news. If nobody is left to be told, the context of Join ends.
func (r *Reporter) Report(news any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Encode(news) //nolint:errcheck // see above
}
