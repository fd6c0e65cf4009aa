package http

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// pageLimit is the maximum size of an index page in bytes.
const pageLimit = 64 << 20

// index is what an index page lists: names in byte order, those of directories with a trailing "/".
type index struct {
	names   []string
	skipped []backends.Skipped
}

// readIndex parses the index page of the directory at a URL, in HTML or JSON.
func readIndex(res *http.Response, at *url.URL) (index, error) {
	text, err := io.ReadAll(io.LimitReader(res.Body, pageLimit+1))
	switch {
	case err != nil:
		return index{}, err
	case len(text) > pageLimit:
		return index{}, backends.Errorf(backends.Unsupported, "list", "", "the index page has more than %d MiB", pageLimit>>20)
	}
	var in index
	known := false
	if body := bytes.TrimSpace(text); len(body) > 0 && body[0] == '[' {
		known = in.fromJSON(body)
	} else {
		known = in.fromHTML(text, at)
	}
	if !known {
		return index{}, errNoIndex
	}
	slices.Sort(in.names)
	in.names = slices.Compact(in.names)
	return in, nil
}

var errNoIndex = backends.Errorf(backends.Unsupported, "list", "", "the page of this directory is no index that nginx, Apache, Caddy or Python write: name the objects with ?manifest= or braces")

// fromJSON reads the index of nginx (autoindex_format json) or Caddy. It reports whether it is one.
func (in *index) fromJSON(text []byte) bool {
	var entries []struct {
		Name, Type string
		IsDir      bool `json:"is_dir"`
	}
	if json.Unmarshal(text, &entries) != nil {
		return false
	}
	for _, e := range entries {
		name := strings.TrimSuffix(e.Name, "/")
		switch {
		case name == "":
			return false
		case e.IsDir || e.Type == "directory":
			in.add(name, true)
		case e.Type == "file", e.Type == "":
			in.add(name, false)
		default:
			in.skip(name, "neither a file nor a directory")
		}
	}
	return true
}

// fromHTML reads the links of a page to what is directly in its directory. It reports whether the
// page is an index: its heading says so, it has a link to the parent directory, or its links are
// preformatted text, as those of Go's http.FileServer.
func (in *index) fromHTML(text []byte, at *url.URL) (known bool) {
	parent := at.Path[:strings.LastIndexByte(strings.TrimSuffix(at.Path, "/"), '/')+1]
	tokens := html.NewTokenizer(bytes.NewReader(text))
	for heading, listing := false, false; ; {
		switch tokens.Next() {
		case html.ErrorToken: // the end
			return known
		case html.TextToken:
			if words := strings.ToLower(strings.TrimSpace(string(tokens.Text()))); heading {
				known = known || strings.HasPrefix(words, "index of") || strings.HasPrefix(words, "directory listing")
			}
		case html.EndTagToken:
			heading = false
		case html.StartTagToken, html.SelfClosingTagToken:
			token := tokens.Token()
			heading = token.DataAtom == atom.Title || token.DataAtom == atom.H1
			listing = listing || token.DataAtom == atom.Pre
			if token.DataAtom != atom.A {
				continue
			}
			for _, a := range token.Attr {
				if a.Key == "href" {
					known = in.link(a.Val, at, parent) || known || listing
				}
			}
		}
	}
}

// link adds the object or directory to which a link leads. Links to elsewhere do not count. It
// reports whether it is the link to the parent directory.
func (in *index) link(href string, at *url.URL, parent string) (up bool) {
	to, err := at.Parse(href)
	if err != nil || to.Scheme != at.Scheme || to.Host != at.Host || to.RawQuery != "" || to.ForceQuery {
		return false // as the links of Apache that sort the page
	}
	if to.Path == parent {
		return true
	}
	name, below := strings.CutPrefix(to.Path, at.Path)
	if !below || name == "" {
		return false
	}
	dir := strings.HasSuffix(name, "/")
	name = strings.TrimSuffix(name, "/")
	if strings.Contains(strings.ToLower(to.EscapedPath()[min(len(at.EscapedPath()), len(to.EscapedPath())):]), "%2f") {
		in.skip(name, "a link with a slash in its name")
	} else if !strings.Contains(name, "/") {
		in.add(name, dir)
	}
	return false
}

// add adds a name, unless its URL would be that of something else.
func (in *index) add(name string, dir bool) {
	if !objectstore.Passable(name) || strings.Contains(name, "/") {
		in.skip(name, "a link whose name is no name of a file")
		return
	}
	if dir {
		name += "/"
	}
	in.names = append(in.names, name)
}

func (in *index) skip(name, what string) {
	in.skipped = append(in.skipped, backends.Skipped{Key: name, What: what})
}
