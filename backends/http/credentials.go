package http

import (
	"encoding/base64"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// credentials are read from the files in the package comment, and again after the server has
// rejected them.
type credentials struct {
	opts backends.Options
	root *url.URL
	user string // of the URL; selects a login of a netrc file

	mu      sync.Mutex // guards the fields below
	own     string     // the Authorization header for root; may be empty
	entries []login    // of the netrc file
}

// login is one entry of a netrc file.
type login struct{ machine, user, password string } // machine "": the default

func newCredentials(opts backends.Options, root *url.URL, user string) *credentials {
	return &credentials{opts: opts, root: root, user: user}
}

// load reads the files.
func (c *credentials) load() error {
	own, entries, err := c.read()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.own, c.entries = own, entries
	return nil
}

func (c *credentials) read() (own string, entries []login, err error) {
	var unread error
	file := func(name string) string {
		text, err := objectstore.SecretFile(c.opts, name)
		unread = errors.Join(unread, err)
		return text
	}
	token, user, password, netrc := file("token"), file("username"), file("password"), file("netrc")
	if unread != nil {
		return "", nil, backends.Errorf(backends.Permission, "open", "", "cannot read the files with credentials: %w", unread)
	}
	switch {
	case token != "":
		own = "Bearer " + token
	case user != "" || password != "":
		if user == "" {
			user = c.user
		}
		own = basic(user, password)
	}
	if strings.ContainsAny(own, "\r\n") {
		return "", nil, backends.Errorf(backends.Permission, "open", "", "the file with the token has more than one line")
	}
	if netrc != "" {
		return own, parseNetrc(netrc), nil
	}
	text, err := os.ReadFile(c.netrc())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", nil, backends.Errorf(backends.Permission, "open", "", "cannot read the netrc file: %w", err)
	}
	return own, parseNetrc(string(text)), nil
}

// netrc returns the path of the user's netrc file; "" if there is none.
func (c *credentials) netrc() string {
	if c.opts.Getenv == nil {
		return ""
	}
	if path := c.opts.Getenv("NETRC"); path != "" {
		return path
	}
	if home := c.opts.Getenv("HOME"); home != "" {
		return filepath.Join(home, ".netrc")
	}
	return ""
}

// authorization returns the Authorization header for a URL; "" if there is none. The files of a Secret and
// the default of a netrc file are for the host of the store's URL alone: a manifest may name others.
func (c *credentials) authorization(at *url.URL) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	home := objectstore.SameHost(at, c.root)
	if home && c.own != "" {
		return c.own
	}
	for _, l := range c.entries {
		switch {
		case home && c.user != "" && l.user != c.user:
		case strings.EqualFold(l.machine, at.Hostname()), l.machine == "" && home:
			return basic(l.user, l.password)
		}
	}
	return ""
}

func basic(user, password string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// parseNetrc returns the entries of a netrc file. It ignores what it does not know.
func parseNetrc(text string) (entries []login) {
	var kept []string
	macro := false
	for line := range strings.Lines(text) {
		switch trimmed := strings.TrimSpace(line); {
		case macro: // its body ends at an empty line
			macro = trimmed != ""
		case strings.HasPrefix(trimmed, "macdef"):
			macro = true
		case !strings.HasPrefix(trimmed, "#"):
			kept = append(kept, strings.Fields(trimmed)...)
		}
	}
	for i := 0; i < len(kept); i++ {
		value := func() (v string) {
			if i++; i < len(kept) {
				v = strings.Trim(kept[i], `"`)
			}
			return v
		}
		last := len(entries) - 1
		switch word := kept[i]; {
		case word == "machine":
			entries = append(entries, login{machine: value()})
		case word == "default":
			entries = append(entries, login{})
		case last < 0:
		case word == "login":
			entries[last].user = value()
		case word == "password":
			entries[last].password = value()
		case word == "account":
			value()
		}
	}
	return entries
}
