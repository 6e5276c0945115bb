//go:build unix

package fleet

import "syscall"

// Freeze makes replica i stand still, as the pause of a virtual machine would,
// until Thaw or Kill.
func (f *Fleet[N]) Freeze(i int) error { return f.processes[i].cmd.Process.Signal(syscall.SIGSTOP) }

// Thaw lets a replica that was frozen go on.
func (f *Fleet[N]) Thaw(i int) error { return f.processes[i].cmd.Process.Signal(syscall.SIGCONT) }
