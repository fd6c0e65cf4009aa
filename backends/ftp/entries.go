package ftp

import (
	"io/fs"
	"regexp"
	"strconv"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// parseEntry parses a line of MLSD:
//
//	type=file;size=5;modify=20261126180000; name
//
// ok is false for lines of another form. The type of the directory itself and of its parent is that
// of an entry named ".".
func parseEntry(line string) (e fileshare.Entry, ok bool) {
	attributes, name, found := strings.Cut(line, " ")
	if !found || !strings.HasSuffix(attributes, ";") {
		return e, false
	}
	e.Name, e.Size = name, -1
	e.Type = fs.ModeIrregular
	typed := false
	for _, fact := range strings.Split(strings.TrimSuffix(attributes, ";"), ";") {
		key, value, _ := strings.Cut(fact, "=")
		var err error
		switch strings.ToLower(key) {
		case "type":
			typed = true
			e.Type = typeOf(strings.ToLower(value))
			if value := strings.ToLower(value); value == "cdir" || value == "pdir" {
				e.Name = "."
			}
		case "size":
			e.Size, err = strconv.ParseInt(value, 10, 64)
		case "modify":
			e.ModTime, err = parseTime(value)
		}
		if err != nil {
			return e, false
		}
	}
	return e, typed && (e.Size >= 0 || e.Type != 0)
}

// typeOf returns the type bits of a type in MLSD.
func typeOf(word string) fs.FileMode {
	switch {
	case word == "file":
		return 0
	case word == "dir", word == "cdir", word == "pdir":
		return fs.ModeDir
	case strings.HasPrefix(word, "os.unix=s"): // slink:TARGET or symlink
		return fs.ModeSymlink
	}
	return fs.ModeIrregular
}

// Lines of LIST, as ls -l and Windows write them.
var (
	unixForm = regexp.MustCompile(`^([-dlbcps])[-rwxsStTlL]{9}[.+@]?\s+\d+\s.*?\s?(\d+|\d+,\s*\d+)\s+(?:\S+\s+\d{1,2}\s+(?:\d{4}|\d{1,2}:\d\d)|\d{4}-\d\d-\d\d \d\d:\d\d) (.+)$`)
	dosForm  = regexp.MustCompile(`^\d\d-\d\d-(?:\d\d|\d{4})\s+\d\d:\d\d(?:[AP]M)?\s+(?:(<DIR>|<JUNCTION>)\s+|(\d+) )(.+)$`)
)

// parseLine parses a line of LIST, whose time is not exact. skip is true for lines that are no
// entries.
func parseLine(line string) (e fileshare.Entry, skip bool, err error) {
	if line == "" || strings.HasPrefix(line, "total ") {
		return e, true, nil
	}
	if m := unixForm.FindStringSubmatch(line); m != nil {
		e.Name = m[3]
		e.Type = map[string]fs.FileMode{"-": 0, "d": fs.ModeDir, "l": fs.ModeSymlink, "p": fs.ModeNamedPipe}[m[1]]
		if strings.Contains("bcs", m[1]) {
			e.Type = fs.ModeIrregular
		}
		if e.Type == fs.ModeSymlink {
			e.Name, _, _ = strings.Cut(m[3], " -> ")
		}
		return e, false, nil
	}
	if m := dosForm.FindStringSubmatch(line); m != nil {
		e.Name = m[3]
		if m[1] != "" {
			e.Type = fs.ModeDir
		}
		return e, false, nil
	}
	return e, false, unreadable(line)
}

// unreadable is the error of a line in a listing, such as one that a line break in a name has split.
func unreadable(line string) error {
	return backends.Errorf(backends.Unsupported, "list", "", "cannot read the line %q of the server's listing: rename files whose names contain line breaks, or enable MLSD", objectstore.OneLine(line))
}
