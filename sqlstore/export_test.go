package sqlstore

import (
	"context"
	"database/sql"

	"github.com/joblease/joblease"
)

// ResultCode is tested with errors of drivers that the tests do not import.
var ResultCode = resultCode

// Take sends take.sql without the look that goes before it.
func Take(ctx context.Context, s *SQLite, c joblease.Claim) (joblease.Grant, error) {
	return call(ctx, s, func(ctx context.Context, conn *sql.Conn) (joblease.Grant, error) {
		return s.take(ctx, conn, c)
	})
}
