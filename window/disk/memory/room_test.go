package memory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// tree creates files below a new directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const mib = 1 << 20

// vmstat returns a file /proc/vmstat; its arguments are in MiB.
func vmstat(dirty, flush, background, threshold int64) string {
	pages := func(n int64) int64 { return n * mib / int64(os.Getpagesize()) }
	return fmt.Sprintf("nr_free_pages 1\nnr_dirty %d\nnr_writeback %d\nnr_writeback_temp 7\nnr_dirty_threshold %d\nnr_dirty_background_threshold %d\n",
		pages(dirty), pages(flush), pages(threshold), pages(background))
}

func TestRoomUsesKernelAndControlGroupLimits(t *testing.T) {
	v1 := func(limit, usage, active, inactive, dirty, flush int64) map[string]string {
		return map[string]string{
			"memory/pod/memory.limit_in_bytes": fmt.Sprintln(limit * mib),
			"memory/pod/memory.usage_in_bytes": fmt.Sprintln(usage * mib),
			"memory/pod/memory.stat":           fmt.Sprintf("dirty 1\ntotal_active_file %d\ntotal_inactive_file %d\ntotal_dirty %d\ntotal_writeback %d\n", active*mib, inactive*mib, dirty*mib, flush*mib),
		}
	}
	v2 := func(limit string, current, active, inactive, dirty, flush int64) map[string]string {
		return map[string]string{
			"pod/memory.max":     limit + "\n",
			"pod/memory.high":    "max\n",
			"pod/memory.current": fmt.Sprintln(current * mib),
			"pod/memory.stat":    fmt.Sprintf("active_file %d\ninactive_file %d\nfile_dirty %d\nfile_writeback %d\n", active*mib, inactive*mib, dirty*mib, flush*mib),
		}
	}
	const inV1, inV2 = "9:cpu,memory:/pod\n", "0::/pod\n"
	for name, tt := range map[string]struct {
		vmstat, own string
		groups      map[string]string
		want        Room // in MiB
	}{
		"no group":               {vmstat(100, 20, 2000, 4000), inV1, nil, Room{Free: 3000 - 120 - 128, Pending: 120, Flush: 20}},
		"a small machine":        {vmstat(0, 0, 100, 220), inV1, nil, Room{Free: 140}},
		"no limit":               {vmstat(0, 0, 2000, 4000), inV1, v1(1<<40, 10, 0, 0, 0, 0), Room{Free: 2872}},
		"v1, empty":              {vmstat(0, 0, 2000, 4000), inV1, v1(256, 50, 0, 0, 0, 0), Room{Free: 256 - 50 - 32, Group: true}},
		"v1, clean pages":        {vmstat(0, 0, 2000, 4000), inV1, v1(256, 250, 100, 100, 0, 0), Room{Free: 256 - 50 - 32, Group: true}},
		"v1, dirty pages":        {vmstat(90, 10, 2000, 4000), inV1, v1(256, 250, 100, 100, 90, 10), Room{Free: 256 - 50 - 32 - 100, Pending: 100, Flush: 10, Group: true}},
		"v1, full":               {vmstat(0, 0, 2000, 4000), inV1, v1(64, 50, 0, 0, 0, 0), Room{Free: -18, Group: true}},
		"v2, its own thresholds": {vmstat(0, 0, 2000, 4000), inV2, v2("1073741824", 424, 300, 100, 50, 0), Room{Free: 1000*15/100 - 50, Group: true}},
		"v2, no limit":           {vmstat(0, 0, 2000, 4000), inV2, v2("max", 424, 300, 100, 50, 0), Room{Free: 2872}},
		"v2, nothing is known":   {vmstat(0, 0, 2000, 4000), inV2, map[string]string{"pod/memory.max": "1073741824\n"}, Room{Free: 0, Group: true}},
	} {
		t.Run(name, func(t *testing.T) {
			proc := tree(t, map[string]string{"vmstat": tt.vmstat, "self/cgroup": tt.own, "sys/vm/dirty_ratio": "20\n", "sys/vm/dirty_background_ratio": "10\n"})
			got, err := newReader(proc, tree(t, tt.groups)).Read()
			if err != nil {
				t.Fatal(err)
			}
			got.Free, got.Pending, got.Flush = got.Free/mib, got.Pending/mib, got.Flush/mib
			if got != tt.want {
				t.Errorf("got %+v in MiB, want %+v", got, tt.want)
			}
		})
	}
}

func TestRoomIsUnknownWithoutKernelNumbers(t *testing.T) {
	for name, text := range map[string]string{"empty": "", "old": "nr_dirty 1\nnr_writeback 0\n"} {
		if room, err := newReader(tree(t, map[string]string{"vmstat": text}), t.TempDir()).Read(); err == nil {
			t.Errorf("%s: got %+v and no error, want one", name, room)
		}
	}
	if room, err := newReader(t.TempDir(), t.TempDir()).Read(); err == nil {
		t.Errorf("no vmstat: got %+v and no error, want one", room)
	}
}

func TestRoomOfThisMachine(t *testing.T) {
	room, err := NewReader().Read()
	if err != nil {
		t.Logf("this kernel does not report it: %v", err)
		return
	}
	if room.Pending < room.Flush || room.Flush < 0 {
		t.Errorf("got %+v, want no more written to disks than is pending", room)
	}
}
