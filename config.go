package joblease

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"
)

// Limits on what a lease can be.
const (
	// MinTTL is the shortest lease: below it scheduling delays of the machine
	// alone are as long as the Margin.
	MinTTL = 50 * time.Millisecond
	// MaxTTL is the longest lease, a year: far above what makes sense, and below
	// where instants overflow.
	MaxTTL = 365 * 24 * time.Hour
	// MaxNameLen is the longest name of a lease and the longest label of a
	// holder, in bytes.
	MaxNameLen = 255
)

// Config holds the durations and the callbacks of a [Lease] or a [Supervisor].
// The zero value works. All durations are on the local monotonic clock.
//
// The durations constrain each other: RenewEvery + 2*CallTimeout + Margin must
// be less than TTL, so that a renewal that fails can be tried once more before
// trust in the lease ends.
type Config struct {
	// TTL is how long the lease outlives its last renewal, and so how long a
	// takeover takes after a crash. Default 15 s, from [MinTTL] to [MaxTTL].
	TTL time.Duration
	// RenewEvery is the time from one renewal to the next. Default TTL/3.
	RenewEvery time.Duration
	// Margin is how long before the expiry a holder stops trusting its lease. It
	// covers the drift between two clocks over one TTL and the time that work
	// takes to notice that its context has ended. Default TTL/10.
	Margin time.Duration
	// CallTimeout bounds each call to the store. Default TTL/5.
	CallTimeout time.Duration
	// StopTimeout bounds the wait for work to stop at shutdown. Default 30 s.
	StopTimeout time.Duration

	// Holder is the label of this replica in the row and in messages. It decides
	// nothing and need not be unique. Default "host:pid/random".
	Holder string
	// Logger gets one line per event. Default [slog.Default].
	Logger *slog.Logger
	// Observe is called with each event of the lease, one at a time, in order, on
	// a goroutine of its own. It may block or panic: that delays and loses later
	// events and nothing else. An Observe that several leases share is called by
	// each of them, so at the same time, and in no order between them; the tokens
	// of one name tell which term came first.
	Observe func(Event)
}

const (
	defaultTTL         = 15 * time.Second
	defaultStopTimeout = 30 * time.Second
	// minDuration is less than anything that makes sense, and more than a number
	// whose unit was forgotten.
	minDuration = time.Millisecond
)

// resolve fills in the defaults and checks the result.
func (c Config) resolve() (Config, error) {
	if c.TTL == 0 {
		c.TTL = defaultTTL
	}
	if c.TTL < MinTTL {
		return c, &ConfigError{"TTL", c.TTL, fmt.Sprintf("must be at least %v", MinTTL)}
	}
	if c.TTL > MaxTTL {
		return c, &ConfigError{"TTL", c.TTL, fmt.Sprintf("must be at most %v", MaxTTL)}
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{
		{"RenewEvery", &c.RenewEvery, c.TTL / 3},
		{"Margin", &c.Margin, c.TTL / 10},
		{"CallTimeout", &c.CallTimeout, c.TTL / 5},
		{"StopTimeout", &c.StopTimeout, defaultStopTimeout},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
		if *d.value < minDuration {
			return c, &ConfigError{d.field, *d.value, fmt.Sprintf(
				"must be positive and at least %v, or zero for the default; a number without a unit is nanoseconds", minDuration)}
		}
	}
	// Each term is checked by itself first, so that their sum cannot overflow.
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"RenewEvery", c.RenewEvery}, {"CallTimeout", c.CallTimeout}, {"Margin", c.Margin}} {
		if d.value >= c.TTL {
			return c, &ConfigError{d.field, d.value, fmt.Sprintf("must be less than TTL, which is %v", c.TTL)}
		}
	}
	if least := c.RenewEvery + 2*c.CallTimeout + c.Margin; least >= c.TTL {
		return c, &ConfigError{"TTL", c.TTL, fmt.Sprintf(
			"must be greater than RenewEvery + 2*CallTimeout + Margin, which is %v + 2*%v + %v = %v; "+
				"raise TTL or lower the others, so that a failed renewal can be tried again in time",
			c.RenewEvery, c.CallTimeout, c.Margin, least)}
	}
	if c.Holder == "" {
		c.Holder = defaultHolder()
	}
	if err := checkText("Holder", c.Holder); err != nil {
		return c, err
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c, nil
}

// checkText reports whether s can be stored as it is by every database.
func checkText(field, s string) error {
	switch {
	case s == "":
		return &ConfigError{field, `""`, "must not be empty"}
	case len(s) > MaxNameLen:
		return &ConfigError{field, fmt.Sprintf("%.40q… (%d bytes)", s, len(s)),
			fmt.Sprintf("must be at most %d bytes; it is never truncated, since two names could become one", MaxNameLen)}
	case !utf8.ValidString(s) || strings.ContainsRune(s, 0):
		return &ConfigError{field, fmt.Sprintf("%q", s), "must be UTF-8 without a zero byte"}
	}
	return nil
}

// isNil reports whether v is nil, or an interface around a nil pointer, which
// would fail only when it is used.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	return !r.IsValid() || r.Kind() == reflect.Pointer && r.IsNil()
}

// CheckName reports whether name can be the name of a lease: 1 to [MaxNameLen]
// bytes of UTF-8 without a zero byte. The error is a *[ConfigError].
func CheckName(name string) error { return checkText("Name", name) }

// defaultHolder tells people where a lease is held. The random part tells apart
// two leases of one process, and a process from its successor of the same id.
func defaultHolder() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var r [4]byte
	rand.Read(r[:]) // never returns an error: it ends the process instead
	return fmt.Sprintf("%.200s:%d/%s", strings.ToValidUTF8(host, "?"), os.Getpid(), hex.EncodeToString(r[:]))
}
