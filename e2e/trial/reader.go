package trial

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Reader is a process of a trainer: it takes shards bound to its connection, reads
// them whole and acknowledges them.
type Reader struct {
	Socket string
	Input  string
	ID     string
	Group  string // "" where there is one only
	Epochs int
	Record string        // file that it appends to
	Pace   time.Duration // how long it works on a shard
	Pauses []*Pause      // in their order
}

// event is a line of a reader's record.
type event struct {
	Group   string `json:"group,omitempty"`
	What    string `json:"what"` // took, acking, acked, late or end
	Epoch   int    `json:"epoch"`
	Pos     int    `json:"pos"`
	Name    string `json:"name,omitempty"`
	SHA256  string `json:"sha256,omitempty"`
	Attempt int    `json:"attempt,omitempty"`
}

// leased is what the API answers to a lease.
type leased struct {
	End     bool   `json:"end"`
	Epoch   int    `json:"epoch"`
	Lease   string `json:"lease"`
	Pos     int    `json:"pos"`
	Path    string `json:"path"`
	Attempt int    `json:"attempt"`
}

// Run reads until the last epoch has ended. A daemon that is gone for a while is
// waited for; an error of the file system is a broken promise.
func (r Reader) Run(ctx context.Context) error {
	record, err := os.OpenFile(r.Record, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer record.Close() // each line is written when note returns
	note := func(e event) error {
		line, err := json.Marshal(e)
		if err != nil {
			return err
		}
		_, err = record.Write(append(line, '\n'))
		return err
	}
	client := r.client()
	asks := url.Values{"wait": {"5s"}, "reader": {r.ID}}
	if r.Group != "" {
		asks.Set("group", r.Group)
	}
	for {
		if err := r.pause(ctx); err != nil {
			return err
		}
		var l leased
		code, err := r.call(ctx, client, "/v1/inputs/"+r.Input+"/lease?"+asks.Encode(), &l)
		switch {
		case err != nil:
			return err
		case code == http.StatusNoContent:
			continue
		case code != http.StatusOK:
			return fmt.Errorf("a lease is answered with %d", code)
		case l.End:
			if err := note(event{What: "end", Epoch: l.Epoch}); err != nil || l.Epoch >= r.Epochs-1 {
				return err
			}
			continue
		}
		sum, err := digest(l.Path)
		if err != nil {
			return fmt.Errorf("a shard that was leased cannot be read: %w", err)
		}
		e := event{Group: r.Group, What: "took", Epoch: l.Epoch, Pos: l.Pos, Name: l.Path, SHA256: sum, Attempt: l.Attempt}
		if err := note(e); err != nil {
			return err
		}
		time.Sleep(r.Pace) // the work of a trainer, not a wait for something
		e.What = "acking"  // a kill from here on leaves open whether it was heard
		if err := note(e); err != nil {
			return err
		}
		code, err = r.call(ctx, client, "/v1/leases/"+l.Lease+"/ack", nil)
		if err != nil {
			return err
		}
		switch code {
		case http.StatusNoContent:
			e.What = "acked"
		case http.StatusGone:
			e.What = "late" // the lease had ended: somebody else gets the shard
		default:
			return fmt.Errorf("an acknowledgement is answered with %d", code)
		}
		if err := note(e); err != nil {
			return err
		}
	}
}

// client talks over one connection, as long as that lasts.
func (r Reader) client() *http.Client {
	return &http.Client{Transport: &http.Transport{
		MaxIdleConns: 1, MaxConnsPerHost: 1,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.Socket)
		},
	}}
}

// call posts, again and again while the daemon is gone.
func (r Reader) call(ctx context.Context, client *http.Client, path string, out any) (code int, err error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stager"+path, nil)
		if err != nil {
			return 0, err
		}
		req.Header.Set("Stager-Bind", "connection")
		resp, err := client.Do(req)
		if err == nil {
			var body []byte
			body, err = io.ReadAll(resp.Body)
			_ = resp.Body.Close() // read whole
			if err == nil && resp.StatusCode != http.StatusServiceUnavailable {
				if out != nil && resp.StatusCode == http.StatusOK {
					err = json.Unmarshal(body, out)
				}
				return resp.StatusCode, err
			}
		}
		select {
		case <-ctx.Done():
			return 0, errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// digest is the SHA-256 of a file, or of the names and bytes of a directory's files.
func digest(path string) (string, error) {
	if info, err := os.Stat(path); err != nil {
		return "", err
	} else if info.IsDir() {
		return digestDir(path)
	}
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close() // opened for reading
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func digestDir(path string) (string, error) {
	h := sha256.New()
	err := filepath.WalkDir(path, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		body, err := os.ReadFile(file)
		if err == nil {
			name, _ := filepath.Rel(path, file) // it was walked to from there
			noteFile(h, name, body)
		}
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

func noteFile(h io.Writer, name string, body []byte) { fmt.Fprintf(h, "%q %q\n", name, body) }

// Event is a line of a reader's record.
type Event = event

// readRecord is what a reader wrote down; a last line that a kill tore is left out.
func readRecord(path string) ([]event, error) {
	events, _, err := ReadRecord(path, 0)
	return events, err
}

// ReadRecord is what a reader wrote down from a byte of its record on, and the byte at which to
// continue. A last line without an end is left for later. A record that does not exist is empty.
func ReadRecord(path string, from int64) (events []Event, to int64, err error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, from, nil // killed before its first line
	}
	if err != nil {
		return nil, from, err
	}
	defer file.Close() // opened for reading
	if _, err = file.Seek(from, io.SeekStart); err != nil {
		return nil, from, err
	}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = nil
			}
			return events, from, err
		}
		from += int64(len(line))
		var e Event
		if json.Unmarshal(line, &e) == nil {
			events = append(events, e)
		}
	}
}
