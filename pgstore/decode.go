package pgstore

import (
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/joblease/joblease"
)

// decoder reads the columns of a row in text format one after the other. The
// first error stays.
type decoder struct {
	row [][]byte
	err error
}

// text returns the next column; null is empty.
func (d *decoder) text() string {
	if len(d.row) == 0 {
		d.fail(errors.New("too few columns"))
		return ""
	}
	s := string(d.row[0])
	d.row = d.row[1:]
	return s
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = fmt.Errorf("unexpected answer: %w", err)
	}
}

func (d *decoder) boolean() bool { return d.text() == "t" }

func (d *decoder) integer() int64 {
	n, err := strconv.ParseInt(d.text(), 10, 64)
	if err != nil {
		d.fail(err)
	}
	return n
}

// duration reads microseconds. One that is too long for a time.Duration, as only
// an operator writes it, becomes the longest there is.
func (d *decoder) duration() time.Duration {
	n := d.integer()
	return time.Duration(min(max(n, math.MinInt64/1000), math.MaxInt64/1000)) * time.Microsecond
}

// instant reads microseconds since 1970.
func (d *decoder) instant() time.Time { return time.UnixMicro(d.integer()).UTC() }

// optional reads an instant; null is the zero one.
func (d *decoder) optional() time.Time {
	if len(d.row) > 0 && d.row[0] == nil {
		d.text()
		return time.Time{}
	}
	return d.instant()
}

// claim reads a uuid; null is the zero one.
func (d *decoder) claim() (id joblease.ClaimID) {
	s := d.text()
	if s == "" {
		return id
	}
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil || len(b) != len(id) {
		d.fail(fmt.Errorf("%q is not a uuid", s))
		return id
	}
	return joblease.ClaimID(b)
}
