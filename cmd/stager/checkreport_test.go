package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/stager/check"
)

func TestCheckReport(t *testing.T) {
	behind := -12.34
	r := &check.Report{
		Store: "smb://server/share/scratch", Began: time.Date(2026, 11, 21, 9, 36, 0, 0, time.UTC), Seconds: 18.4,
		Capabilities: check.Capabilities{
			AtomicReplace: true, PartBytes: 8 << 20, MaxParts: 10_000, Connections: 16,
			LongestName: 255, LongestKey: check.MostKey, RefusedNames: []string{"a:b", strings.Repeat("long", 10)}, ClockAheadSeconds: &behind,
		},
		Speed: check.Speed{
			One:  check.Rate{Requests: 1, FileBytes: 256 << 20, Write: 215 << 20, Read: 1.4 * (1 << 30)},
			Many: check.Rate{Requests: 16, FileBytes: 8 << 20, Read: 357 << 20},
			Tiny: check.Rate{Requests: 16, FileBytes: check.TinyBytes, Write: 669 * check.TinyBytes, Read: 2260 * check.TinyBytes},
			Stat: check.Latency{Requests: 50, Median: 0.000471, Slowest: 0.0123},
		},
		Promises: []check.Promise{
			{Area: check.Areas[0], Sentence: "a missing key is reported as missing", State: check.Holds},
			{Area: check.Areas[4], Sentence: "of eight writers of a free key one wins", State: check.Unknown, Found: []string{"the store does not promise it"}},
			{
				Area: check.Areas[0], Sentence: "a long listing is complete", State: check.Fails,
				Found: []string{"the list has 1,000 keys of 1,100, and ascending they are: true", "2", "3", "4", "5"},
				Means: "Of a directory with more objects than one page holds, prefetch and window miss some, without an error.", Do: "Mend it.",
			},
		},
		Left: "the scratch directory could not be removed",
	}
	var out strings.Builder
	if err := printReport(&out, r); err != nil {
		t.Fatal(err)
	}
	const want = `smb://server/share/scratch, checked 21 November 2026 09:36 UTC in 18 s

1 of 3 promises does NOT hold. Each ✗ below explains the consequences and what to do.
NOT CLEAN: the scratch directory could not be removed.

Facts
  replaces an object at once   yes: readers see the old or the new version
  creates only if absent       NO: two jobs that save the same step need separate destinations
  pins reads to a version      no: compared before and after each read
  checksum                     none; sizes are compared
  parts of large objects       8.0 MiB, at most 10,000 of them
  concurrent requests          16
  longest key                  4,096 or more bytes below this URL
  longest name                 255 bytes between two slashes
  unsupported names            such as "a:b" "longlonglonglonglong…"
  clock                        12.3 s behind this machine's

Speed, measured from here
                                    write             read
  one request at a time         215 MiB/s        1.4 GiB/s   a file of 256 MiB
  16 in parallel                        –        357 MiB/s   files of 8.0 MiB
  16 in parallel, small       669 files/s    2,260 files/s   files of 50 KiB
  one response                                      470 µs   stat: median of 50, the slowest took 12 ms

Names and listings
  ✓ a missing key is reported as missing
  ✗ a long listing is complete
      found   the list has 1,000 keys of 1,100, and ascending they are: true
      found   2
      found   3
      found   … and 2 more like these
      means   Of a directory with more objects than one page holds, prefetch and window miss some,
              without an error.
      do      Mend it.

Replacing, and one winner
  – of eight writers of a free key one wins: the store does not promise it
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("the report (-want +got):\n%s", diff)
	}
}

func TestCheckAllGoesUpToExistingDirectories(t *testing.T) {
	for location, want := range map[string]string{
		"nfs://server/export/runs/train/":       "nfs://server/export/runs/",
		"nfs://server/export":                   "nfs://server/",
		"nfs://server/":                         "",
		"s3://bucket/a%20b/c?endpoint=http://e": "s3://bucket/a%20b/?endpoint=http://e",
		"file:///":                              "",
		"://":                                   "",
	} {
		if got := directoryAbove(location); got != want {
			t.Errorf("%s: got %q, want %q", location, got, want)
		}
	}
}
