package status

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/stager-dev/stager/window"
)

// A stream of shards for loaders that can run a command per URL and know nothing of
// stager, such as WebDataset's "pipe:curl …/next?reader=1". The protocol is in the
// order of requests: a reader's next request acknowledges the shard before, if that
// was taken whole; a body that was not taken to its last byte is refused, so the
// shard is delivered again. After the end of an epoch the body is an empty tar.

// emptyTar is the end of an archive: two blocks of zeros.
var emptyTar = make([]byte, 1024)

// streams remembers which lease a reader's stream holds. One exists per API.
type streams struct {
	mu   sync.Mutex
	held map[string]string // reader of an input → lease id
}

// swap stores the lease a reader holds and returns the one it held; "" is none.
func (s *streams) swap(reader, id string) (before string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before = s.held[reader]
	if id == "" {
		delete(s.held, reader)
	} else {
		if s.held == nil {
			s.held = make(map[string]string)
		}
		s.held[reader] = id
	}
	return before
}

func (a *API) next(w http.ResponseWriter, r *http.Request) {
	win := a.window(w, r)
	if win == nil {
		return
	}
	who := reader(r)
	key := r.PathValue("input") + "\x00" + who
	if before := a.streams.swap(key, ""); before != "" {
		if err := win.Ack(before); err != nil && !errors.Is(err, window.ErrNoLease) {
			fail(w, http.StatusInternalServerError, err)
			return
		}
	}
	l, err := nextShard(r, win, who)
	var end *window.EndError
	switch {
	case errors.As(err, &end):
		w.Header().Set("Stager-End", strconv.Itoa(end.Epoch))
		w.Header().Set("Content-Type", "application/x-tar")
		_, _ = w.Write(emptyTar) // a peer that is gone asks again
		return
	case err != nil:
		a.leaseFailed(w, r, err)
		return
	}
	if err := a.stream(w, r, l); err != nil {
		a.giveBack(win, l, err.Error())
		if !errors.Is(err, errNotTaken) {
			fail(w, http.StatusInternalServerError, err)
		}
		return
	}
	a.streams.swap(key, l.ID)
}

// nextShard waits for a shard as long as the reader does: to a pipe an empty answer
// would look like an empty archive.
func nextShard(r *http.Request, win *window.Window, who string) (window.Lease, error) {
	for {
		l, err := win.Lease(r.Context(), window.LeaseRequest{Reader: who, Wait: time.Hour})
		var waited *window.WaitError
		if !errors.As(err, &waited) || r.Context().Err() != nil {
			return l, err
		}
	}
}

// errNotTaken says that the reader did not take the body to its last byte.
var errNotTaken = errors.New("the reader did not take the whole shard")

// stream sends a shard and returns nil when the reader has taken its last byte. Any
// error but errNotTaken came before the first byte was sent.
func (a *API) stream(w http.ResponseWriter, r *http.Request, l window.Lease) error {
	file, err := os.Open(l.Path)
	if err != nil {
		return fmt.Errorf("the shard is not there any more: %w", err)
	}
	defer file.Close() // opened for reading
	h := w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Length", strconv.FormatInt(l.Size, 10))
	h.Set("Stager-Lease", l.ID)
	h.Set("Stager-Shard", l.Name)
	h.Set("Stager-Epoch", strconv.Itoa(l.Epoch))
	h.Set("Stager-Position", strconv.Itoa(l.Pos))
	h.Set("Stager-Attempt", strconv.Itoa(l.Attempt))
	if n, err := io.Copy(w, file); err != nil || n != l.Size {
		return errNotTaken
	}
	if err := http.NewResponseController(w).Flush(); err != nil {
		return errNotTaken
	}
	if conn := connOf(r); conn != nil && !conn.taken(r.Context()) {
		return errNotTaken
	}
	return nil
}
