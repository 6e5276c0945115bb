package sqlstore

import (
	"errors"
	"reflect"
)

// Result codes of SQLite (https://sqlite.org/rescode.html). The low byte is the
// primary code.
const (
	codeError    = 1
	codeBusy     = 5
	codeLocked   = 6
	codeReadOnly = 8
	codeProtocol = 15
	codeSchema   = 17

	codeMoved    = codeReadOnly | 4<<8 // SQLITE_READONLY_DBMOVED
	codeSnapshot = codeBusy | 2<<8     // SQLITE_BUSY_SNAPSHOT
	codeDatatype = 19 | 12<<8          // SQLITE_CONSTRAINT_DATATYPE
)

// isLocked reports whether a statement failed, without any effect, because of
// what another connection was doing, so that it may be tried again.
func isLocked(err error) bool {
	switch resultCode(err) & 0xff {
	case codeBusy, codeLocked, // a lock is in the way
		codeProtocol, // a race for the locks of the WAL index
		codeSchema:   // the schema changed faster than the statement could be compiled
		return true
	}
	return false
}

// resultCode returns SQLite's result code in err, the extended one where the
// driver tells it, or 0 if there is none. Each driver has an error type of its
// own, which cannot be named here without importing it.
func resultCode(err error) int {
	// modernc.org/sqlite: func (*Error) Code() int, the extended code.
	var coder interface{ Code() int }
	if errors.As(err, &coder) {
		return coder.Code()
	}
	for ; err != nil; err = unwrap(err) {
		v := reflect.ValueOf(err)
		// github.com/ncruces/go-sqlite3: func (*Error) ExtendedCode() ExtendedErrorCode,
		// or an ExtendedErrorCode as the error itself. It is a uint16.
		if m := v.MethodByName("ExtendedCode"); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
			if out := m.Call(nil)[0]; out.CanUint() {
				return int(out.Uint())
			}
		}
		if v.CanUint() && v.MethodByName("Code").IsValid() {
			return int(v.Uint())
		}
		// github.com/mattn/go-sqlite3: type Error struct { ExtendedCode ErrNoExtended; … },
		// which is an int.
		if v.Kind() == reflect.Struct {
			if f := v.FieldByName("ExtendedCode"); f.IsValid() && f.CanInt() {
				return int(f.Int())
			}
		}
	}
	return 0
}

// unwrap returns the error that err wraps. Of several it is the last, where
// this package and errors.Join put the driver's.
func unwrap(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok {
		if list := many.Unwrap(); len(list) > 0 {
			return list[len(list)-1]
		}
		return nil
	}
	return errors.Unwrap(err)
}
