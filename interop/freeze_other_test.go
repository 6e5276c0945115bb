//go:build !unix

package interop_test

import "errors"

func frozenReplica(string) error { return errors.New("there is no signal that freezes a process here") }
