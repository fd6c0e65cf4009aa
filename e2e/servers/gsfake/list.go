package gsfake

import (
	"encoding/base64"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// list answers with one page of objects. The page may be short, since those that do not match the
// glob count.
func (c *call) list() error {
	most, err := c.PageSize("maxResults", 1000)
	if err != nil {
		return err
	}
	after, err := base64.URLEncoding.DecodeString(c.Query.Get("pageToken"))
	if err != nil {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "Invalid page token.")
	}
	if from := c.Query.Get("startOffset"); len(after) == 0 && from != "" {
		after = before(from)
	}
	var out struct {
		NextPageToken string     `json:"nextPageToken,omitempty"`
		Items         []resource `json:"items,omitempty"`
		Prefixes      []string   `json:"prefixes,omitempty"`
	}
	glob := globbing(c.Query.Get("matchGlob"))
	keys, objects, more := c.Page(c.Query.Get("prefix"), c.Query.Get("delimiter"), string(after), most)
	for i, key := range keys {
		if objects[i] == nil {
			out.Prefixes = append(out.Prefixes, key)
			continue
		}
		if glob.MatchString(key) {
			item := newResource(key, objects[i])
			item.Metadata = nil
			out.Items = append(out.Items, item)
		}
	}
	if more {
		out.NextPageToken = base64.URLEncoding.EncodeToString([]byte(keys[len(keys)-1]))
	}
	return c.send(out)
}

// before returns what sorts before a key and behind all keys before it, as far as there are such keys here.
func before(key string) []byte {
	last := len(key) - 1
	return append([]byte(key[:last]), key[last]-1, 0xff, 0xff, 0xff, 0xff)
}

// globbing returns the regular expression of a glob of "*" and "**".
func globbing(glob string) *regexp.Regexp {
	if glob == "" {
		glob = "**"
	}
	text := strings.ReplaceAll(regexp.QuoteMeta(glob), `\*\*`, ".*")
	return regexp.MustCompile("(?s)^" + strings.ReplaceAll(text, `\*`, "[^/]*") + "$")
}

// listBuckets answers with the buckets of the project.
func (c *call) listBuckets(who bool) error {
	switch {
	case c.Method != http.MethodGet || !c.json:
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This request to no bucket is not known here.")
	case !who:
		return fake.Fail(http.StatusUnauthorized, "AccessDenied", "Anonymous caller does not have storage.buckets.list access to the Google Cloud project.")
	case c.Query.Get("project") != Project:
		return fake.Fail(http.StatusForbidden, "AccessDenied", "The account does not have storage.buckets.list access to the Google Cloud project.")
	}
	type item struct {
		Name string `json:"name"`
	}
	var out struct {
		Items []item `json:"items,omitempty"`
	}
	c.s.Mu.Lock()
	for _, name := range slices.Sorted(maps.Keys(c.s.Buckets)) {
		out.Items = append(out.Items, item{name})
	}
	c.s.Mu.Unlock()
	return c.send(out)
}
