package storetest

import (
	"github.com/joblease/joblease"
)

var acquireChecks = []check{
	{"a free name is granted with token 1 and the next change of hands raises it by one", func(e *env) {
		g := e.granted(claim("job", long, never))
		if g.Token != 1 {
			e.Fatalf("token %d; that of a new row is 1", g.Token)
		}
		e.released(g)
		if g := e.granted(claim("job", long, never)); g.Token != 2 {
			e.Fatalf("token %d; after 1 comes 2", g.Token)
		}
		if rows := e.list(); len(rows) != 1 {
			e.Fatalf("%d rows; one lease is one row", len(rows))
		}
	}},
	{"a lease that another holds is refused and the row is unchanged in every column", func(e *env) {
		e.granted(claim("job", long, never))
		before := e.list()
		for _, takeover := range []joblease.Takeover{never, expired} {
			e.held(claim("job", short, takeover))
			e.unchanged(before, "a refused acquire")
		}
	}},
}
