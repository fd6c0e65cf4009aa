package main

import "fmt"

// linuxOnlyError is returned by commands whose promises rest on what only the kernel of Linux
// reports.
type linuxOnlyError struct{ command, reason string }

func (e *linuxOnlyError) Error() string {
	return fmt.Sprintf("stager %s needs Linux: %s", e.command, e.reason)
}

// onlyOnLinux returns an error for a command that cannot keep its promises on a system.
func onlyOnLinux(goos, command, reason string) error {
	if goos == "linux" {
		return nil
	}
	return &linuxOnlyError{command, reason}
}
