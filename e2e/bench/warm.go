package bench

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// warm takes so many bytes of memory, and gives them back. A virtual machine lends its
// host what is free, and has it back slowly: without this the first to fill that memory,
// which may be either of a pair, would pay for it.
func warm(bytes int64) error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("how much memory is free: %w", err)
	}
	bytes = min(bytes, int64(info.Freeram)*int64(info.Unit)/2)
	if bytes < 1 {
		return nil
	}
	p, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("taking %d bytes of memory: %w", bytes, err)
	}
	return unix.Munmap(p)
}
