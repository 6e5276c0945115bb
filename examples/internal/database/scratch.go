package database

import (
	"context"
	"crypto/rand"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
)

// Scratch is what a program makes for itself in a database and removes at its end.
type Scratch struct {
	// URL of the database, or path of the file.
	URL string
	// Table for the leases. Another run of the program on the same database has
	// another.
	Table string
	// Name of the database, for people.
	Name string

	dir string // of the file, if there is one
}

// NewScratch returns a place in the PostgreSQL database at url or, if that is
// empty, in a SQLite file in a temporary folder. The table is made, so that a
// database that cannot be reached is told here. The caller calls Remove.
func NewScratch(ctx context.Context, url, program string) (*Scratch, error) {
	s := &Scratch{URL: url, Table: "joblease_" + program + "_" + rand.Text()[:8]}
	if url == "" {
		dir, err := os.MkdirTemp("", "joblease-"+program+"-")
		if err != nil {
			return nil, err
		}
		s.dir, s.URL, s.Name = dir, filepath.Join(dir, "app.db"), "a SQLite file"
	} else {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			return nil, err // which says what is wrong with the URL, without the password
		}
		s.Name = "PostgreSQL at " + cfg.Host
	}
	_, done, err := Open(ctx, s.URL, s.Table)
	if err != nil {
		if s.dir != "" {
			os.RemoveAll(s.dir) //nolint:errcheck // it is in the folder that the system clears
		}
		return nil, err
	}
	done()
	return s, nil
}

// Remove removes the folder, or the lease table and those others from a database
// that is not the program's own.
func (s *Scratch) Remove(others ...string) error {
	if s.dir != "" {
		os.RemoveAll(s.dir) //nolint:errcheck // it is in the folder that the system clears
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx) //nolint:errcheck // nothing hangs on it
	for _, table := range append(others, s.Table) {
		if _, err := conn.Exec(ctx, "DROP TABLE IF EXISTS "+pgx.Identifier{table}.Sanitize()); err != nil {
			return err
		}
	}
	return nil
}
