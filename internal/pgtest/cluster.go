package pgtest

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
)

// template is the cluster that all servers of this binary are copies of: initdb
// takes longer than everything else.
var template struct {
	mu  sync.Mutex
	dir map[string]string // by the folder of the programs
}

func templateCluster(bin string, cred *syscall.Credential) (string, error) {
	template.mu.Lock()
	defer template.mu.Unlock()
	if dir, ok := template.dir[bin]; ok {
		return filepath.Join(dir, "data"), nil
	}
	dir, err := tempDir(cred)
	if err != nil {
		return "", err
	}
	data := filepath.Join(dir, "data")
	if err := runAs(cred, dir, filepath.Join(bin, "initdb"), "-D", data, "-U", "postgres", "-A", "trust",
		"--encoding=UTF8", "--locale=C", "--no-sync", "--no-instructions"); err != nil {
		return "", errors.Join(err, removeAll(dir))
	}
	if template.dir == nil {
		template.dir = make(map[string]string)
	}
	template.dir[bin] = dir
	return data, nil
}

func removeTemplate() error {
	template.mu.Lock()
	defer template.mu.Unlock()
	var errs []error
	for _, dir := range template.dir {
		errs = append(errs, removeAll(dir))
	}
	template.dir = nil
	return errors.Join(errs...)
}

// removeAll deletes a folder in which a process that is just ending may still
// put a file.
func removeAll(dir string) error {
	var err error
	for range 5 {
		if err = os.RemoveAll(dir); err == nil || !errors.Is(err, syscall.ENOTEMPTY) {
			break
		}
	}
	return err
}

// tempDir makes a folder that the server's user owns.
func tempDir(cred *syscall.Credential) (string, error) {
	base := os.TempDir()
	// The path of a Unix socket has at most 103 bytes on some systems, and
	// macOS's folder for temporary files takes more than half of them.
	if len(base) > 40 {
		base = "/tmp"
	}
	sweep.Do(func() { removeLeftovers(base) })
	dir, err := os.MkdirTemp(base, fmt.Sprintf("pgtest-%d-", os.Getpid()))
	if err != nil {
		return "", err
	}
	if cred != nil {
		if err := os.Chown(dir, int(cred.Uid), int(cred.Gid)); err != nil {
			return "", errors.Join(err, os.Remove(dir))
		}
	}
	return dir, nil
}

var sweep sync.Once

// removeLeftovers deletes the folders of test binaries that were killed. Their
// names tell the process.
func removeLeftovers(base string) {
	dirs, err := filepath.Glob(filepath.Join(base, "pgtest-*-*"))
	if err != nil {
		return
	}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(strings.Split(filepath.Base(dir), "-")[1])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			os.RemoveAll(dir) //nolint:errcheck // another user's is not ours to delete
		}
	}
}

// credential is whom to run a server as: the server refuses to run as root.
// Nil means as the user of this process.
func credential() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		if u, err = user.Lookup("nobody"); err != nil {
			return nil, fmt.Errorf("a server cannot run as root, and there is no user postgres or nobody: %w", err)
		}
	}
	uid, uerr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gerr := strconv.ParseUint(u.Gid, 10, 32)
	if err := cmp.Or(uerr, gerr); err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// runAs runs a program to its end.
func runAs(cred *syscall.Credential, dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = dir, environment()
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: cred}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(name), err, out)
	}
	return nil
}

// environment is that of this process without the variables by which the
// server's programs could be led astray.
func environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
	return append(env, "LC_ALL=C")
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// parameters are the settings of every server of this package, each as
// name=value; extra ones win. A crash of the machine may eat the cluster, a
// crash of the server may not.
func parameters(extra map[string]string) []string {
	p := map[string]string{
		"fsync":              "off",
		"max_connections":    "200",
		"shared_buffers":     "32MB",
		"log_line_prefix":    logPrefix,
		"log_min_messages":   "warning",
		"lc_messages":        "C",
		"logging_collector":  "off",
		"log_destination":    "stderr",
		"autovacuum_naptime": "1h", // tests that count writes must not meet it
		"max_wal_size":       "256MB",
		"wal_level":          "replica",
	}
	for name, value := range extra {
		p[name] = value
	}
	var out []string
	for name, value := range p {
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	return out
}
