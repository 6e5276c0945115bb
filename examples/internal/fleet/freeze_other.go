//go:build !unix

package fleet

import "errors"

// Freeze would make replica i stand still. This system has no signal for it.
func (f *Fleet[N]) Freeze(int) error { return errors.ErrUnsupported }

// Thaw would let a replica that was frozen go on.
func (f *Fleet[N]) Thaw(int) error { return errors.ErrUnsupported }
