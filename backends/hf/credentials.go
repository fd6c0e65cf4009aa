package hf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// credentials hold the token. It is read again after the Hub has rejected it.
type credentials struct {
	opts backends.Options

	mu    sync.Mutex // guards token
	token string
}

// load reads the token from the first source that has one.
func (c *credentials) load() error {
	token, err := c.read()
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = token
	return nil
}

func (c *credentials) get() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.token
}

// value returns the contents of a file of a Secret, or the variable of that name.
func (c *credentials) value(name string) (string, error) {
	text, err := objectstore.SecretFile(c.opts, name)
	if err != nil {
		return "", backends.Errorf(backends.Permission, "open", "", "cannot read the files with credentials: %w", err)
	}
	if text == "" {
		text = c.getenv(name)
	}
	return text, nil
}

func (c *credentials) getenv(name string) string {
	if c.opts.Getenv == nil {
		return ""
	}
	return strings.TrimSpace(c.opts.Getenv(name))
}

func (c *credentials) read() (string, error) {
	token, err := c.value("HF_TOKEN")
	if path := c.file(); token == "" && err == nil && path != "" {
		text, rerr := os.ReadFile(path)
		if rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return "", backends.Errorf(backends.Permission, "open", "", "cannot read the file with the token: %w", rerr)
		}
		token = strings.TrimSpace(string(text))
	}
	if strings.ContainsAny(token, "\r\n") {
		return "", backends.Errorf(backends.Permission, "open", "", "the token has more than one line")
	}
	return token, err
}

// file returns the path of the file that "hf auth login" writes; "" if it is unknown.
func (c *credentials) file() string {
	if path := c.getenv("HF_TOKEN_PATH"); path != "" {
		return path
	}
	if home := c.getenv("HF_HOME"); home != "" {
		return filepath.Join(home, "token")
	}
	cache := c.getenv("XDG_CACHE_HOME")
	if home := c.getenv("HOME"); cache == "" && home != "" {
		cache = filepath.Join(home, ".cache")
	}
	if cache == "" {
		return ""
	}
	return filepath.Join(cache, "huggingface", "token")
}
