package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// lineLimit is the maximum length of a line of a manifest: signatures are long.
const lineLimit = 1 << 20

// readManifest reads a manifest, whose name is that of the parameter. Keys begin with dir.
func (s *site) readManifest(ctx context.Context, name, dir string) (map[string]entry, error) {
	base := s.under(dir)
	at, err := base.Parse(name)
	if err != nil {
		return nil, backends.Errorf(backends.Invalid, "open", "", "?manifest= is no URL: write special characters as %%XX")
	}
	objectstore.Sendable(at)
	body, err := s.openManifest(ctx, at)
	if err != nil {
		return nil, err
	}
	defer body.Close() // only read from
	m := manifest{dir: dir, base: base, at: at, entries: make(map[string]entry)}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, lineLimit)
	for n := 1; lines.Scan(); n++ {
		backends.Moved(ctx)
		if err := m.line(bytes.TrimSpace(lines.Bytes())); err != nil {
			return nil, backends.Errorf(backends.Invalid, "open", "", "line %d of the manifest: %w", n, err)
		}
	}
	switch {
	case lines.Err() != nil:
		return nil, s.explain("open", "", at, lines.Err())
	case len(m.entries) == 0:
		return nil, backends.Errorf(backends.Invalid, "open", "", "the manifest lists no object")
	}
	return m.entries, nil
}

// openManifest opens a manifest on a server or this machine.
func (s *site) openManifest(ctx context.Context, at *url.URL) (io.ReadCloser, error) {
	if at.Scheme == "file" {
		file, err := os.Open(at.Path)
		if err != nil {
			return nil, backends.Errorf(backends.KindOf(err), "open", "", "cannot read the manifest: %w", err)
		}
		return file, nil
	}
	res, _, err := s.fetcher.Fetch(ctx, http.MethodGet, at, s.header(at))
	if err == nil && res.StatusCode != http.StatusOK {
		err = objectstore.Refusal(res)
	}
	if err == nil {
		if err = acceptable(path.Base(at.Path), res.Header); err == nil {
			return res.Body, nil
		}
		res.Body.Close() //nolint:errcheck // it is thrown away
	}
	err = s.explain("open", "", at, err)
	if e := (*backends.Error)(nil); errors.As(err, &e) {
		e.Err = fmt.Errorf("cannot read the manifest: %w", e.Err)
	}
	return nil, err
}

// manifest is a manifest that is being read.
type manifest struct {
	dir      string // of its keys: "" or ending in "/"
	base, at *url.URL
	entries  map[string]entry
}

// line adds the object of a line, if it has one. Errors do not repeat it: it may be signed.
func (m *manifest) line(text []byte) error {
	switch {
	case len(text) == 0 || text[0] == '#':
		return nil
	case text[0] == '{':
		return m.object(text)
	}
	sum, name, ok := checksumLine(string(text))
	if !ok {
		return errors.New("neither a checksum of SHA-256 and a name, nor JSON")
	}
	name = strings.TrimPrefix(name, "./")
	if !objectstore.Passable(name) {
		return errors.New("the name is not one below the directory of the URL")
	}
	at := *m.base
	at.Path += name
	return m.add(name, entry{at: &at, size: -1, sum: sum})
}

// object adds the object of a line of JSON.
func (m *manifest) object(text []byte) error {
	var line struct {
		URL, Key, SHA256 string
		Size             *int64
	}
	if json.Unmarshal(text, &line) != nil || line.URL == "" {
		return errors.New("not an object of JSON with a url")
	}
	at, err := m.at.Parse(line.URL)
	if m.at.Scheme == "file" {
		at, err = m.base.Parse(line.URL)
	}
	if err != nil || at.Hostname() == "" || at.Scheme != "http" && at.Scheme != "https" {
		return errors.New("the url is not one of http or https")
	}
	if at.User != nil {
		return errors.New("credentials do not belong in a URL: use a netrc file")
	}
	at.Fragment, at.RawFragment = "", ""
	objectstore.Sendable(at)
	e := entry{at: at, size: -1}
	if line.Size != nil {
		if e.size = *line.Size; e.size < 0 {
			return errors.New("the size is negative")
		}
	}
	if line.SHA256 != "" {
		if e.sum, err = backends.ParseChecksum(string(backends.SHA256) + ":" + line.SHA256); err != nil {
			return errors.New("sha256 is not a checksum of 64 hexadecimal digits")
		}
	}
	if line.Key == "" {
		line.Key = path.Base(at.Path)
		if below, ok := strings.CutPrefix(at.Path, m.base.Path); ok && objectstore.SameHost(at, m.base) {
			line.Key = below
		}
	}
	if !objectstore.Passable(line.Key) {
		return errors.New("the key is not a name below a directory")
	}
	return m.add(line.Key, e)
}

func (m *manifest) add(name string, e entry) error {
	key := m.dir + name
	if _, twice := m.entries[key]; twice {
		return errors.New("an earlier line has the same name: give each its own key")
	}
	m.entries[key] = e
	return nil
}

// checksumLine parses a line as sha256sum writes it, with or without --tag.
func checksumLine(line string) (sum backends.Checksum, name string, ok bool) {
	line, escaped := strings.CutPrefix(line, `\`)
	digits, name, ok := strings.Cut(line, " ")
	if tagged, is := strings.CutPrefix(line, "SHA256 ("); is {
		at := strings.LastIndex(tagged, ") = ")
		if at < 0 {
			return sum, "", false
		}
		name, digits, ok = tagged[:at], tagged[at+len(") = "):], true
	} else if name != "" { // the second space, or "*" for binary
		name = name[1:]
	}
	if raw, err := hex.DecodeString(digits); err != nil || len(raw) != backends.SHA256.Size() || !ok || name == "" {
		return sum, "", false
	}
	if escaped {
		name = strings.NewReplacer(`\\`, `\`, `\n`, "\n", `\r`, "\r").Replace(name)
	}
	return backends.Checksum{Algorithm: backends.SHA256, Value: strings.ToLower(digits)}, name, true
}
