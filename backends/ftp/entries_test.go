package ftp

import (
	"io/fs"
	"testing"
)

func TestParseLine(t *testing.T) {
	for line, want := range map[string]struct {
		name string
		kind fs.FileMode
		skip bool
	}{
		"total 12": {"", 0, true},
		"":         {"", 0, true},
		"-rw-r--r--    1 0        0         3000000 Nov 26 18:48 big file.bin":   {"big file.bin", 0, false},
		"-rw-r--r--    1 0        0               4 Nov 26  2020  leading":       {" leading", 0, false},
		"-rw-rw-r--+ 1 domain users grp 11 Feb 29 00:00 a":                       {"a", 0, false},
		"-rw-r--r-- 1 u g 5 2026-11-26 18:00 iso":                                {"iso", 0, false},
		"-rw-r--r-- 1 u g 5 Nov 26 18:00 -rw-r--r-- 1 u g 7 Nov 26 18:00 nested": {"-rw-r--r-- 1 u g 7 Nov 26 18:00 nested", 0, false},
		"drwxr-sr-x 2 u g 4096 Jan 01  2026 dir":                                 {"dir", fs.ModeDir, false},
		"lrwxrwxrwx 1 u g 7 Nov 26 18:48 link -> big.bin":                        {"link", fs.ModeSymlink, false},
		"prw-r--r-- 1 u g 0 Nov 26 18:48 fifo":                                   {"fifo", fs.ModeNamedPipe, false},
		"crw-rw-rw- 1 root root 1,   3 Nov 26 18:48 null":                        {"null", fs.ModeIrregular, false},
		"11-26-26  06:48PM       <DIR>          my dir":                          {"my dir", fs.ModeDir, false},
		"11-26-2026  18:48              3000000 my file":                         {"my file", 0, false},
	} {
		e, skip, err := parseLine(line)
		if err != nil || skip != want.skip || e.Name != want.name || e.Type != want.kind {
			t.Errorf("%q: got %q of type %v, skip %t, %v; want %q, %v, %t", line, e.Name, e.Type, skip, err, want.name, want.kind, want.skip)
		}
	}
	for _, line := range []string{"hello", "-rw-r--r-- 1 u g", "-rw-r--r-- 1 u g 5 Nov 26 18:00", "VMS.TXT;1 5 26-NOV-2026", "drwxr-xr-x 2 u g 4096 Jan 01 2026 "} {
		if e, skip, err := parseLine(line); err == nil {
			t.Errorf("%q: got %q, skip %t; want an error", line, e.Name, skip)
		}
	}
}

func TestParseEntry(t *testing.T) {
	for line, want := range map[string]struct {
		name string
		kind fs.FileMode
		size int64
	}{
		"type=file;size=5;modify=20261126180000; a b":                             {"a b", 0, 5},
		"Modify=20261126180000.123;Perm=adfr;Size=0;Type=file;UNIX.mode=0644;  x": {" x", 0, 0},
		"type=dir;modify=20261126180000; sub; dir":                                {"sub; dir", fs.ModeDir, -1},
		"type=cdir;modify=20261126180000; /home":                                  {".", fs.ModeDir, -1},
		"type=pdir; /":                                                            {".", fs.ModeDir, -1},
		"type=OS.unix=slink:/etc;size=4; link":                                    {"link", fs.ModeSymlink, 4},
		"type=OS.unix=symlink;size=4; link":                                       {"link", fs.ModeSymlink, 4},
		"type=OS.unix=chr-1/3; null":                                              {"null", fs.ModeIrregular, -1},
	} {
		e, ok := parseEntry(line)
		if !ok || e.Name != want.name || e.Type != want.kind || e.Size != want.size {
			t.Errorf("%q: got %q of type %v and %d bytes, %t; want %q, %v, %d", line, e.Name, e.Type, e.Size, ok, want.name, want.kind, want.size)
		}
	}
	for _, line := range []string{"", "a", "type=file;size=5 a", "type=file; a", "size=5; a", "type=file;size=x; a"} {
		if e, ok := parseEntry(line); ok {
			t.Errorf("%q: got %q, want an error", line, e.Name)
		}
	}
}
