package pgstore_test

import (
	"io"
	"net"
	"strconv"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/joblease/joblease/internal/pgtest"
)

// proxy stands between a store and its server and can be made to swallow what
// is sent.
type proxy struct {
	addr   *net.TCPAddr
	target string

	mu    sync.Mutex
	pairs []*pair
	new   bool // whether new connections are swallowed from the start
}

// pair is one connection through the proxy.
type pair struct {
	mu     sync.Mutex
	frozen bool
}

func (p *pair) swallows() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.frozen
}

// newProxy returns a proxy to the database's server, which ends with the test.
func newProxy(t *testing.T, db *pgtest.DB) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	cfg := db.Config(t).ConnConfig
	p := &proxy{
		addr:   l.Addr().(*net.TCPAddr),
		target: net.JoinHostPort(cfg.Host, strconv.Itoa(int(cfg.Port))),
	}
	var wg sync.WaitGroup
	var conns sync.Map
	t.Cleanup(func() {
		l.Close()
		conns.Range(func(c, _ any) bool { c.(net.Conn).Close(); return true })
		wg.Wait()
	})
	wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", p.target)
			if err != nil {
				client.Close()
				continue
			}
			conns.Store(client, nil)
			conns.Store(server, nil)
			p.mu.Lock()
			this := &pair{frozen: p.new}
			p.pairs = append(p.pairs, this)
			p.mu.Unlock()
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				wg.Go(func() { this.copy(way[1], way[0]) })
			}
		}
	})
	return p
}

// copy passes on what comes until either end is closed.
func (p *pair) copy(to io.WriteCloser, from io.ReadCloser) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.swallows() {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// freeze swallows from now on everything on the connections that there are. New
// ones are swallowed too if all is set.
func (p *proxy) freeze(all bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.new = all
	for _, c := range p.pairs {
		c.mu.Lock()
		c.frozen = true
		c.mu.Unlock()
	}
}

// thaw lets new connections through. Those that were frozen stay so, as after a
// gap in which the other side has given up.
func (p *proxy) thaw() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.new = false
}

// pool returns a pool on the database through the proxy.
func (p *proxy) pool(t *testing.T, db *pgtest.DB) *pgxpool.Pool {
	t.Helper()
	cfg := db.Config(t)
	cfg.ConnConfig.Host, cfg.ConnConfig.Port = "127.0.0.1", uint16(p.addr.Port)
	return pgtest.NewPool(t, cfg)
}
