package pgtest

import "syscall"

// attributes makes a server run as cred, if any, and shut down at once when this
// process is gone, however it ended.
func attributes(cred *syscall.Credential) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{
		Credential: cred,
		Pdeathsig:  syscall.SIGQUIT,
		// A Ctrl-C at the terminal is for the tests, which stop the server
		// themselves.
		Setpgid: true,
	}
}
