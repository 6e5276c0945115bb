package storetest

import (
	"fmt"
	"time"

	"github.com/joblease/joblease"
)

// watch begins to watch name through s and waits until releases are told.
func (e *env) watch(s joblease.Store, name string) joblease.Watch {
	e.Helper()
	watcher, ok := s.(joblease.Watcher)
	if !ok {
		e.Skipf("%T is no joblease.Watcher", s)
	}
	called := time.Now()
	w := watcher.Watch(name)
	if took := time.Since(called); took > e.promptly {
		e.Fatalf("Watch took %v; it must not block", took)
	}
	e.Cleanup(w.Stop)
	e.await("the watch is live", w.Live)
	return w
}

// woken requires a value on w.Wake.
func (e *env) woken(w joblease.Watch, what string) {
	e.Helper()
	select {
	case <-w.Wake:
	case <-time.After(e.patience):
		e.Fatalf("%s woke nobody within %v", what, e.patience)
	}
}

// quiet receives what is there on w.Wake, so that what comes next is news.
func quiet(w joblease.Watch) {
	for {
		select {
		case <-w.Wake:
		default:
			return
		}
	}
}

var watchChecks = []check{
	{"a release wakes the candidates that watch the lease, on every handle", func(e *env) {
		var watches []joblease.Watch
		for _, s := range e.handles(2) {
			watches = append(watches, e.watch(s, "job"), e.watch(s, "job"))
		}
		for range 3 {
			g := e.granted(claim("job", long, never))
			for _, w := range watches {
				quiet(w)
			}
			e.released(g)
			for _, w := range watches {
				e.woken(w, "a release")
			}
		}
	}},
	{"a release wakes the candidates whatever the lease's name", func(e *env) {
		var watches []joblease.Watch
		var grants []joblease.Grant
		for _, name := range texts {
			watches = append(watches, e.watch(e.s, name))
			grants = append(grants, e.granted(claim(name, long, never)))
		}
		for i, w := range watches {
			quiet(w)
			e.released(grants[i])
		}
		for i, w := range watches {
			e.woken(w, fmt.Sprintf("a release of %q", texts[i]))
		}
	}},
	{"releases that nobody receives are merged and none of them waits", func(e *env) {
		w := e.watch(e.s, "job")
		quiet(w)
		for range 5 {
			e.released(e.granted(claim("job", long, never)))
		}
		e.woken(w, "the last of five releases")
	}},
	{"a watch can be stopped twice and leaves the others alone", func(e *env) {
		w, stopped := e.watch(e.s, "job"), e.watch(e.s, "job")
		stopped.Stop()
		stopped.Stop()
		g := e.granted(claim("job", long, never))
		quiet(w)
		e.released(g)
		e.woken(w, "a release")
		w.Stop()
		again := e.watch(e.s, "job")
		g = e.granted(claim("job", long, never))
		quiet(again)
		e.released(g)
		e.woken(again, "a release")
	}},
}
