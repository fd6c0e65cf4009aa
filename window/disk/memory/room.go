// Package memory reports how many bytes the page cache may take before the kernel makes
// those who write to it wait, and which control groups limit the memory of this process.
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

// Reserve is how many bytes of the page cache are left to others. In a control group it is
// an eighth of the limit where that is less, but smallReserve at least.
const (
	Reserve      = 128 << 20
	smallReserve = 32 << 20
)

// Room is what the page cache can take, in bytes.
type Room struct {
	Free    int64 // may be written before anybody waits; negative where it is too much already
	Pending int64 // written to the cache and not yet to disks
	Flush   int64 // of Pending, that the kernel is writing to disks now
	Group   bool  // Free is that of a control group, whose pages the kernel does not write in the background
}

// Reader reads Room from the kernel. It is used by one goroutine at a time.
type Reader struct {
	proc   string
	groups []string
	page   int64
}

// NewReader returns the Reader of this process.
func NewReader() *Reader {
	return newReader("/proc", "/sys/fs/cgroup")
}

func newReader(proc, groups string) *Reader {
	return &Reader{proc: proc, groups: Groups(groups, filepath.Join(proc, "self/cgroup")), page: int64(os.Getpagesize())}
}

// Read returns the room that there is now. An error means that the kernel does not report it.
//
// The kernel lets everybody write to the cache at full speed until what is pending reaches
// the midpoint of its two thresholds, and slows all writers down beyond it.
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
// Clean pages of files do not count: the kernel drops them when the group needs memory.
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
		return 0, true // a limit of which nothing else is known leaves no room
	}
	var inactive, active, dirty, flush int64
	if two {
		numbers(text, map[string]*int64{"inactive_file": &inactive, "active_file": &active, "file_dirty": &dirty, "file_writeback": &flush})
	} else {
		numbers(text, map[string]*int64{"total_inactive_file": &inactive, "total_active_file": &active, "total_dirty": &dirty, "total_writeback": &flush})
	}
	files := max(inactive+active, dirty+flush)
	free = limit - (usage - files) - dirty - flush - max(smallReserve, min(limit/8, Reserve))
	if two { // such a group has thresholds of its own, of the memory that files may take
		free = min(free, int64(float64(limit-(usage-files))*r.share())-dirty-flush)
	}
	return free, true
}

// share is the midpoint of the kernel's thresholds as a part of the memory for files.
func (r *Reader) share() float64 {
	foreground, ok1 := number(filepath.Join(r.proc, "sys/vm/dirty_ratio"))
	background, ok2 := number(filepath.Join(r.proc, "sys/vm/dirty_background_ratio"))
	if !ok1 || !ok2 || foreground == 0 || background == 0 {
		return 0.1 // less than by default, where thresholds are in bytes or not known
	}
	return float64(foreground+background) / 200
}

// number reads a file that holds one number.
func number(path string) (int64, bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// numbers reads lines of a name and a number into those of the names, and returns how
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
