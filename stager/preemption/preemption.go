// Package preemption waits for the notice that a machine is about to be taken away, as clouds send
// it to spot instances. The source is a file, or a URL that is polled every few seconds.
//
// [Check] validates a source, [Wait] returns when the notice has arrived.
package preemption

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

const (
	every   = 2 * time.Second // most clouds give two minutes' notice
	patient = 2 * time.Second // time-out of one request
	limit   = 64 << 10        // maximum size of a response
)

// Check returns an error unless source is an absolute path or a URL.
func Check(source string) error {
	if filepath.IsAbs(source) {
		return nil
	}
	u, err := url.Parse(source)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return fmt.Errorf("%q is not an absolute path or a URL such as http://169.254.169.254/latest/meta-data/spot/instance-action", source)
	}
	return nil
}

// Wait returns when the notice has arrived, with the time left; 0 if the notice contains no time.
// It returns ctx's error if ctx ends first. If a URL does not respond, Wait logs this once and
// retries.
//
// A file is a notice if it exists. If it contains neither of the texts below, its writer may not have
// finished, so it is one only when the next poll finds the same text. A URL returns a notice with status 200 and a body that is a time
// or TRUE. Both may contain {"action": …, "time": …}, or only a time in RFC 3339 format.
func Wait(ctx context.Context, source string, log *slog.Logger) (time.Duration, error) {
	w := &watcher{source: source, client: &http.Client{Transport: &http.Transport{}, Timeout: patient}}
	defer w.client.CloseIdleConnections()
	reported := false
	for {
		came, at, err := w.check(ctx)
		switch {
		case ctx.Err() != nil:
			return 0, context.Cause(ctx)
		case came && at.IsZero():
			return 0, nil
		case came:
			return max(time.Until(at), time.Second), nil
		case err != nil && !reported:
			reported = true
			log.Warn("cannot poll for preemption notice, retrying", "notice", source, "error", err)
		}
		timer := time.NewTimer(every)
		select {
		case <-ctx.Done():
			timer.Stop()
			return 0, context.Cause(ctx)
		case <-timer.C:
		}
	}
}

type watcher struct {
	source string
	client *http.Client
	token  string    // for the URL, if its cloud requires one
	until  time.Time // the token is valid, or no new one is requested
	seen   []byte    // the text of the file at the last poll, if it was no notice yet; nil: none
}

// check polls once.
func (w *watcher) check(ctx context.Context) (came bool, at time.Time, err error) {
	if !filepath.IsAbs(w.source) {
		return w.poll(ctx)
	}
	before := w.seen
	w.seen = nil
	text, err := readFile(w.source)
	if errors.Is(err, fs.ErrNotExist) {
		return false, at, nil
	}
	if err != nil {
		return false, at, err
	}
	if came, at = read(text); came {
		return true, at, nil
	}
	w.seen = text
	return before != nil && bytes.Equal(before, text), at, nil
}

// readFile reads the beginning of a file. Others who can write to the directory may replace the
// file, so it does not block on a FIFO, and does not read more than a notice can have. It follows
// symbolic links: Kubernetes uses them for files of volumes.
func readFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file (%s), so it is not a notice; remove it", path, info.Mode().Type())
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(file, limit))
}

// poll requests the URL. Most clouds return 404 if there is no notice.
func (w *watcher) poll(ctx context.Context) (came bool, at time.Time, err error) {
	w.renew(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.source, http.NoBody)
	if err != nil {
		return false, at, err
	}
	req.Header.Set("Metadata-Flavor", "Google")
	for _, cloud := range clouds {
		req.Header.Set(cloud+"-metadata-token", w.token)
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return false, at, err
	}
	defer resp.Body.Close() // already read
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	switch {
	case err != nil:
		return false, at, err
	case resp.StatusCode == http.StatusNotFound:
		return false, at, nil
	case resp.StatusCode != http.StatusOK:
		w.until = time.Time{}
		return false, at, fmt.Errorf("the server returned %s", resp.Status)
	}
	came, at = read(text)
	return came, at, nil
}

// clouds are the header prefixes of clouds whose metadata services require a token.
var clouds = []string{"X-aws-ec2", "X-aliyun-ecs"}

const tokenLife = 6 * time.Hour

// renew requests a new token, if the service supports tokens.
func (w *watcher) renew(ctx context.Context) {
	if time.Now().Before(w.until) {
		return
	}
	w.token, w.until = "", time.Now().Add(time.Minute)
	u, err := url.Parse(w.source)
	if err != nil {
		return
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPut, u.Scheme+"://"+u.Host+"/latest/api/token", http.NoBody)
	if err != nil {
		return
	}
	for _, cloud := range clouds {
		req.Header.Set(cloud+"-metadata-token-ttl-seconds", fmt.Sprint(int(tokenLife.Seconds())))
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return
	}
	defer resp.Body.Close() // already read
	text, err := io.ReadAll(io.LimitReader(resp.Body, limit))
	if err == nil && resp.StatusCode == http.StatusOK {
		w.token, w.until = strings.TrimSpace(string(text)), time.Now().Add(tokenLife/2)
	}
}

// read reports whether a text is a notice, and returns its time.
func read(text []byte) (came bool, at time.Time) {
	var said struct {
		Action string    `json:"action"`
		Time   time.Time `json:"time"`
	}
	if err := json.Unmarshal(text, &said); err == nil {
		return said.Action != "" || !said.Time.IsZero(), said.Time
	}
	word := strings.TrimSpace(string(text))
	at, err := time.Parse(time.RFC3339, word)
	return err == nil || strings.EqualFold(word, "true"), at
}
