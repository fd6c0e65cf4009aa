package bench

import (
	"context"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keepMemory has the machine keep that many bytes of its free memory until closed.
//
// A virtual machine may lend its host what is free, in blocks of 2 MiB or more, as Linux
// does by free page reporting. What comes back can take eight times as long to touch, so
// that a run takes as long as the machine rested before it. Here one page of each MiB
// stays in use, and so no free block is large enough to be lent.
func keepMemory(ctx context.Context, bytes int64) (closed func() error, err error) {
	const piece = 1 << 20
	memory, err := unix.Mmap(-1, 0, int(bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes of memory: %w", bytes, err)
	}
	closed = func() error { return unix.Munmap(memory) }
	defer func() {
		if err != nil {
			closed() //nolint:errcheck // the first error counts
		}
	}()
	if err := unix.Madvise(memory, unix.MADV_NOHUGEPAGE); err != nil {
		return nil, fmt.Errorf("map memory in pages: %w", err)
	}
	page := os.Getpagesize()
	for at := 0; at < len(memory); at += page {
		if at%piece == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		memory[at] = 1
	}
	for at := 0; at+piece <= len(memory); at += piece {
		if err := unix.Madvise(memory[at+page:at+piece], unix.MADV_DONTNEED); err != nil {
			return nil, fmt.Errorf("give memory back: %w", err)
		}
	}
	return closed, nil
}
