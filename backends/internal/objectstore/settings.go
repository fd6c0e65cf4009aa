package objectstore

import (
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// Lookup finds settings in the parameters of a Target, in its secret files, and in its environment,
// in this order.
type Lookup struct {
	Target backends.Target
	Unread error // why files could not be read
}

// First returns the first value that is set: of the parameter, or of a file or variable with one of
// the names. Without a parameter, param is "".
func (l *Lookup) First(param string, names ...string) string {
	value := l.Target.Params.Get(param)
	for _, name := range names {
		if value != "" {
			break
		}
		text, err := SecretFile(l.Target.Options, name)
		l.Unread = errors.Join(l.Unread, err)
		if text == "" && l.Target.Getenv != nil {
			text = l.Target.Getenv(name)
		}
		value = text
	}
	return value
}

// SecretFile returns the contents of a file in Options.Secrets without surrounding space; "" if
// there is none.
func SecretFile(opts backends.Options, name string) (string, error) {
	if opts.Secrets == "" {
		return "", nil
	}
	text, err := os.ReadFile(filepath.Join(opts.Secrets, name))
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return strings.TrimSpace(string(text)), err
}

// ParseEndpoint parses the URL of a server. It returns an error of kind Invalid unless it has a
// scheme and a host, and neither credentials nor parameters.
func ParseEndpoint(text string) (*url.URL, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" {
		return nil, backends.Errorf(backends.Invalid, "open", "", "the endpoint must look like https://host:port")
	}
	return u, nil
}
