package sqlstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/joblease/joblease/sqlstore"
	"github.com/stretchr/testify/require"
)

// The shapes of the errors of other drivers; the names do not matter.
type (
	mattnCode     int
	mattnExtended int
	mattn         struct { // github.com/mattn/go-sqlite3 Error, a value
		Code         mattnCode
		ExtendedCode mattnExtended
	}
	ncrucesCode     uint8
	ncrucesExtended uint16             // github.com/ncruces/go-sqlite3 ExtendedErrorCode, an error itself
	ncruces         struct{ rc int32 } // github.com/ncruces/go-sqlite3 *Error
)

func (mattn) Error() string                      { return "mattn" }
func (ncrucesExtended) Error() string            { return "ncruces" }
func (c ncrucesExtended) Code() ncrucesCode      { return ncrucesCode(c) }
func (*ncruces) Error() string                   { return "ncruces" }
func (e *ncruces) Code() ncrucesCode             { return ncrucesCode(e.rc) }
func (e *ncruces) ExtendedCode() ncrucesExtended { return ncrucesExtended(e.rc) }

func TestResultCodesAreReadFromEveryDriver(t *testing.T) {
	const snapshot = 5 | 2<<8
	modernc := func() error {
		path := newFile(t)
		db := open(t, path, wal)
		exec(t, db, "CREATE TABLE work (n INTEGER)")
		tx := begin(t, db)
		value[int64](t, tx, "SELECT count(*) FROM work")
		exec(t, open(t, path, wal), "INSERT INTO work VALUES (1)")
		_, err := tx.ExecContext(t.Context(), "INSERT INTO work VALUES (2)")
		return err
	}()
	for name, err := range map[string]error{
		"modernc":                 modernc,
		"mattn":                   mattn{Code: 5, ExtendedCode: snapshot},
		"ncruces":                 &ncruces{snapshot},
		"ncruces, without a text": ncrucesExtended(snapshot),
	} {
		require.Equal(t, snapshot, sqlstore.ResultCode(err), name)
		require.Equal(t, snapshot, sqlstore.ResultCode(fmt.Errorf("wrapped: %w", err)), name)
		require.Equal(t, snapshot, sqlstore.ResultCode(fmt.Errorf("%w: %w", context.Canceled, err)), name)
	}
	for _, err := range []error{nil, io.EOF, errors.Join(), fmt.Errorf("%w", context.DeadlineExceeded), io.ErrUnexpectedEOF} {
		require.Zero(t, sqlstore.ResultCode(err), "%v", err)
	}
}
