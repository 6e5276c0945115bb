package pgtest

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// The environment variables that steer the choice of a server.
const (
	envKind  = "JOBLEASE_TEST_DATABASE"
	envURL   = "JOBLEASE_POSTGRES_URL"
	envBin   = "JOBLEASE_POSTGRES_BIN"
	envImage = "JOBLEASE_POSTGRES_IMAGE"
)

// find gets a server in the first way that works.
func find() (*instance, error) {
	ways := []struct {
		kind string
		get  func() (*instance, error)
	}{{"url", fromURL}, {"local", fromLocal}, {"testcontainers", fromContainer}}

	only := os.Getenv(envKind)
	var failures []error
	for _, way := range ways {
		if only != "" && only != way.kind {
			continue
		}
		inst, err := way.get()
		if err == nil {
			return inst, nil
		}
		failures = append(failures, fmt.Errorf("%s: %w", way.kind, err))
		// A server that was there and failed is told, not passed over: falling
		// back would test something else than what is asked for.
		if !errors.Is(err, errAbsent) {
			break
		}
	}
	if len(failures) == 0 {
		return nil, fmt.Errorf("pgtest: %s is %q: must be url, local or testcontainers", envKind, only)
	}
	return nil, fmt.Errorf("pgtest: no PostgreSQL server for the tests: set %s to the URL of one whose user may "+
		"create databases, or install PostgreSQL 14 or newer (its programs are found on the PATH, in the usual "+
		"folders or in %s), or start Docker; run the tests with -short to do without\n%w",
		envURL, envBin, errors.Join(failures...))
}

// errAbsent means that a way of getting a server is not set up here at all.
var errAbsent = errors.New("not available")

// fromURL uses the server that the environment names.
func fromURL() (*instance, error) {
	server := os.Getenv(envURL)
	if server == "" {
		return nil, fmt.Errorf("%w: %s is not set", errAbsent, envURL)
	}
	u, err := url.Parse(server)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", envURL, err)
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return nil, fmt.Errorf("%s must begin with postgres://", envURL)
	}
	if err := execute(server, "SELECT 1"); err != nil {
		return nil, err
	}
	return &instance{url: server, stop: func() error { return nil }}, nil
}

// fromLocal starts a server from the programs of this machine.
func fromLocal() (*instance, error) {
	s, err := startLocal(Options{})
	if err != nil {
		return nil, err
	}
	return s.instance(), nil
}

// binFolders are where packages put the programs of a server.
var binFolders = []string{
	"/usr/lib/postgresql/*/bin",                          // Debian
	"/usr/pgsql-*/bin",                                   // Red Hat, from postgresql.org
	"/opt/homebrew/opt/postgresql@*/bin",                 // Homebrew on Apple silicon
	"/usr/local/opt/postgresql@*/bin",                    // Homebrew on Intel
	"/Applications/Postgres.app/Contents/Versions/*/bin", // Postgres.app
	"/usr/local/pgsql/bin",                               // built from source
}

// binaries returns the folder of the server's programs.
func binaries() (string, error) {
	if dir := os.Getenv(envBin); dir != "" {
		if !hasServer(dir) {
			return "", fmt.Errorf("%s is %s, which lacks initdb or postgres", envBin, dir)
		}
		return dir, nil
	}
	if path, err := exec.LookPath("postgres"); err == nil {
		// The PATH may lead to a link; the other programs are beside its target.
		if real, err := filepath.EvalSymlinks(path); err == nil && hasServer(filepath.Dir(real)) {
			return filepath.Dir(real), nil
		}
	}
	var found []string
	for _, pattern := range binFolders {
		dirs, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, slices.DeleteFunc(dirs, func(d string) bool { return !hasServer(d) })...)
	}
	if len(found) == 0 {
		return "", fmt.Errorf("%w: no initdb and postgres in %s, on the PATH or in the usual folders", errAbsent, envBin)
	}
	return slices.MaxFunc(found, func(a, b string) int { return versionIn(a) - versionIn(b) }), nil
}

func hasServer(dir string) bool {
	for _, name := range []string{"initdb", "postgres"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

var digits = regexp.MustCompile(`[0-9]+`)

// versionIn returns the major version that a folder's name tells, else 0.
func versionIn(dir string) int {
	n, err := strconv.Atoi(digits.FindString(dir))
	if err != nil {
		return 0
	}
	return n
}
