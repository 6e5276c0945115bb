// Package migrations holds the schema of the lease table as plain SQL, a folder
// for each kind of database.
//
// The files are named and annotated so that golang-migrate and goose both run
// them as they are. Services that use neither call Migrate on their store. A
// table of another name is made by the store's Migrate, or by a copy of the file
// in which [Table] is replaced.
package migrations

import (
	"embed"
	"io/fs"
	"strings"
)

// Table is the name of the lease table in the files, and the default of every store.
const Table = "joblease_leases"

//go:embed postgres/*.sql sqlite/*.sql
var files embed.FS

// Postgres returns the files for PostgreSQL 14 and newer.
func Postgres() fs.FS { return folder("postgres") }

// SQLite returns the files for SQLite 3.38 and newer.
func SQLite() fs.FS { return folder("sqlite") }

func folder(name string) fs.FS {
	sub, err := fs.Sub(files, name)
	if err != nil {
		panic(err) // the name is a constant of this file, and valid
	}
	return sub
}

// Statements returns the text of each file of f in order, with the table's name
// replaced by table, which the caller has quoted.
func Statements(f fs.FS, table string) ([]string, error) {
	names, err := fs.Glob(f, "*.sql")
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range names { // Glob returns them sorted
		text, err := fs.ReadFile(f, name)
		if err != nil {
			return nil, err
		}
		out = append(out, strings.ReplaceAll(string(text), Table, table))
	}
	return out, nil
}
