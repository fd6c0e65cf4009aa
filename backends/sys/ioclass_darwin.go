package sys

// SetIOClass sets the class of this thread for the I/O scheduler. It returns false if the kernel
// refuses.
func SetIOClass(int) bool { return false }

// IOClass returns the class of this thread for the I/O scheduler.
func IOClass() (class int, ok bool) { return 0, false }
