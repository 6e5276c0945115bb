package storetest_test

import (
	"testing"

	"github.com/joblease/joblease"
	"github.com/joblease/joblease/storetest"
)

func TestMemoryKeepsTheContract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		m := storetest.NewMemory()
		return storetest.Backend{
			Open:      func() joblease.Store { return m },
			Elsewhere: func() []joblease.Store { return []joblease.Store{storetest.NewMemory()} },
			Advance:   m.Step,
			Delete:    m.Delete,
			SetToken: func(name string, token int64) {
				r, _ := m.Get(name)
				r.Token = token
				m.Put(r)
			},
			Lock: m.Lock,
		}
	})
}
