// Package sys holds the calls of the kernel that differ between Linux and macOS: one file of few
// functions for each concern and system. All other code is the same on both.
//
// A function whose promise a system cannot keep returns an error there that is
// [errors.ErrUnsupported]. It never does something weaker. Advice to the kernel has no result, and
// may do nothing.
package sys
