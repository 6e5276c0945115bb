//go:build unix && !linux

package pgtest

import "syscall"

// attributes makes a server run as cred, if any. Only Linux can be told to stop
// it when this process is killed.
func attributes(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Credential: cred, Setpgid: true}
}
