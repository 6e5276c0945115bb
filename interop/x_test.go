package interop_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
)

func stacks() string {
	b := make([]byte, 1<<20)
	return string(b[:runtime.Stack(b, true)])
}

func TestXStale(t *testing.T) {
	s, err := gocron.NewScheduler()
	if err != nil {
		t.Fatal(err)
	}
	var n atomic.Int64
	for range 20 {
		s.NewJob(gocron.DurationJob(5*time.Millisecond), gocron.NewTask(func() { n.Add(1) }))
	}
	stale, total := 0, 0
	early := 0
	began := time.Now()
	for time.Since(began) < 10*time.Second {
		total++
		n.Store(0)
		s.Start()
		time.Sleep(10 * time.Millisecond) // at a tick
		if err := s.StopJobs(); err != nil {
			t.Fatal(err)
		}
		s.RemoveByTags()
		if strings.Contains(stacks(), "selectStart.func1") || strings.Contains(stacks(), "selectExecJobsOutForRescheduling.func1") {
			stale++
			n.Store(0)
			s.Start()
			time.Sleep(time.Millisecond) 
			if n.Load() > 0 { early++ }
			s.StopJobs(); s.RemoveByTags()
		}
	}
	t.Logf("stale ticks after the stop: %d of %d, %d ran in first ms", stale, total, early)
	s.Shutdown()
}

type no struct{}

func (no) IsLeader(context.Context) error { return errors.New("no") }

func TestXElectorGrowth(t *testing.T) {
	s, _ := gocron.NewScheduler(gocron.WithDistributedElector(no{}))
	for range 10 {
		s.NewJob(gocron.DurationJob(time.Millisecond), gocron.NewTask(func() {}))
	}
	var m runtime.MemStats
	s.Start()
	for range 6 {
		time.Sleep(time.Second)
		runtime.GC()
		runtime.ReadMemStats(&m)
		t.Logf("heap %d KiB", m.HeapAlloc/1024)
	}
	s.Shutdown()
}
