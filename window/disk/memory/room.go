// Package memory reports how many bytes can be written to the page cache before the kernel blocks
// the writers, and which control groups limit the memory of this process.
//
// Call [NewReader] once, and [Reader.Read] before each decision.
package memory

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Reserve is the number of bytes of the page cache that are left to others. In a control group it
// is an eighth of the limit if that is less, but at least smallReserve.
const (
	Reserve      = 128 << 20
	smallReserve = 32 << 20
)

// Room is how much the page cache can take, in bytes.
type Room struct {
	Free    int64 // bytes that can be written before writers block; negative if the limit is exceeded
	Pending int64 // written to the cache but not yet to disks
	Flush   int64 // the part of Pending that the kernel is writing to disks now
	Group   bool  // Free is limited by a control group, whose pages the kernel does not write in the background
}

// Reader reads Room from the kernel. It is not safe for concurrent use.
type Reader struct {
	proc   string
	groups []string
	page   int64
}

// NewReader returns a Reader for this process.
func NewReader() *Reader {
	return newReader("/proc", "/sys/fs/cgroup")
}

func newReader(proc, groups string) *Reader {
	return &Reader{proc: proc, groups: Groups(groups, filepath.Join(proc, "self/cgroup")), page: int64(os.Getpagesize())}
}

// Read returns the current Room. An error means that the kernel does not report it.
//
// The kernel lets all processes write to the cache at full speed until the pending bytes reach the
// midpoint of its two thresholds. Beyond it, it slows down all writers.
func (r *Reader) Read() (Room, error) {
	text, err := os.ReadFile(filepath.Join(r.proc, "vmstat"))
	if err != nil {
		return Room{}, err
	}
	var dirty, flush, background, threshold int64
	found := numbers(text, map[string]*int64{
		"nr_dirty": &dirty, "nr_writeback": &flush, "nr_dirty_background_threshold": &background, "nr_dirty_threshold": &threshold,
	})
	if found < 4 {
		return Room{}, fmt.Errorf("%s: the numbers of dirty pages and their thresholds are missing", filepath.Join(r.proc, "vmstat"))
	}
	midpoint := (background + threshold) / 2 * r.page
	room := Room{Pending: (dirty + flush) * r.page, Flush: flush * r.page}
	room.Free = midpoint - room.Pending - min(Reserve, midpoint/8)
	for _, dir := range r.groups {
		if free, limited := r.group(dir); limited && free < room.Free {
			room.Free, room.Group = free, true
		}
	}
	return room, nil
}

// group returns the room in one control group, and whether the group has a limit.
//
// Clean pages of files do not count: the kernel drops them if the group needs memory.
func (r *Reader) group(dir string) (free int64, limited bool) {
	limit, two := int64(math.MaxInt64), false
	for _, file := range []struct {
		name string
		two  bool
	}{{"memory.max", true}, {"memory.high", true}, {"memory.limit_in_bytes", false}} {
		if n, ok := number(filepath.Join(dir, file.name)); ok && n > 0 && n < unlimited {
			limit, two = min(limit, n), file.two
		}
	}
	if limit == math.MaxInt64 {
		return 0, false
	}
	name := "memory.usage_in_bytes"
	if two {
		name = "memory.current"
	}
	text, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	usage, ok := number(filepath.Join(dir, name))
	if err != nil || !ok {
		return 0, true // a limit without other figures leaves no room
	}
	var inactive, active, dirty, flush int64
	if two {
		numbers(text, map[string]*int64{"inactive_file": &inactive, "active_file": &active, "file_dirty": &dirty, "file_writeback": &flush})
	} else {
		numbers(text, map[string]*int64{"total_inactive_file": &inactive, "total_active_file": &active, "total_dirty": &dirty, "total_writeback": &flush})
	}
	files := max(inactive+active, dirty+flush)
	free = limit - (usage - files) - dirty - flush - max(smallReserve, min(limit/8, Reserve))
	if two { // version 2 groups have their own thresholds, relative to the memory that files may take
		free = min(free, int64(float64(limit-(usage-files))*r.share())-dirty-flush)
	}
	return free, true
}

// share returns the midpoint of the kernel's thresholds as a fraction of the memory for files.
func (r *Reader) share() float64 {
	foreground, ok1 := number(filepath.Join(r.proc, "sys/vm/dirty_ratio"))
	background, ok2 := number(filepath.Join(r.proc, "sys/vm/dirty_background_ratio"))
	if !ok1 || !ok2 || foreground == 0 || background == 0 {
		return 0.1 // below the default; for thresholds in bytes or unknown ones
	}
	return float64(foreground+background) / 200
}

// number reads a file that contains one number.
func number(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// numbers parses lines of a name and a number into the variables of these names. It returns how
// many it found.
func numbers(text []byte, of map[string]*int64) (found int) {
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		to, wanted := of[name]
		if !wanted {
			continue
		}
		if n, err := strconv.ParseInt(value, 10, 64); err == nil {
			*to = n
			found++
		}
	}
	return found
}
