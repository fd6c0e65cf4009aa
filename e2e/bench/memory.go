package bench

import (
	"context"
	"fmt"
	"os"
	"strings"

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
	free, err := availableMemory()
	if err != nil {
		return nil, err
	}
	if free < bytes {
		return nil, fmt.Errorf("these rows take %d MiB of memory, and %d MiB are available: give a smaller -size, or choose others with -only", bytes>>20, free>>20)
	}
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
	unix.Madvise(memory, unix.MADV_NOHUGEPAGE) //nolint:errcheck // what a kernel without huge pages does not know
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

// availableMemory is how many bytes can be taken from the machine, in the kernel's view.
func availableMemory() (bytes int64, err error) { return memoryOf("MemAvailable:") }

// memoryOf returns a value of /proc/meminfo, in bytes.
func memoryOf(name string) (bytes int64, err error) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(text), name)
	if _, err := fmt.Sscanf(rest, "%d kB", &bytes); err != nil {
		return 0, fmt.Errorf("%s in /proc/meminfo: %w", name, err)
	}
	return bytes << 10, nil
}
