package pgstore

import (
	"embed"
	"strings"

	"github.com/joblease/joblease/migrations"
)

//go:embed sql/*.sql
var files embed.FS

// statements are the texts of the files in sql, for one table.
type statements struct {
	bound, acquire, renew, release, list, fence, done, check, ping string
}

func load(table string) statements {
	text := func(name string) string {
		b, err := files.ReadFile("sql/" + name + ".sql")
		if err != nil {
			panic(err) // the files are part of the program
		}
		return strings.ReplaceAll(withoutComments(string(b)), migrations.Table, table)
	}
	return statements{
		bound:   text("bound"),
		acquire: text("acquire"),
		renew:   text("renew"),
		release: text("release"),
		list:    text("list"),
		fence:   text("fence"),
		done:    text("done"),
		check:   text("check"),
		ping:    text("ping"),
	}
}

// withoutComments drops the lines that are for readers of the files: the texts
// are sent with every call.
func withoutComments(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}
