package api

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/stager-dev/stager/window"
)

// A stream of shards serves loaders that can run a command per URL and know nothing of stager, such
// as WebDataset's "pipe:curl …/next?reader=1". The protocol is the order of requests: a reader's
// next request acknowledges the previous shard if that was received completely. If a body was not
// received to its last byte, its shard is returned and redelivered. After the end of an epoch
// the body is an empty tar.

// emptyTar is the end of an archive: two blocks of zeros.
var emptyTar = make([]byte, 1024)

// streams holds the readers of streams, each with the shard it received last.
type streams struct {
	mu       sync.Mutex         // guards all below
	of       map[string]*stream // by input and reader
	patience time.Duration      // defaultPatience when 0
}

// stream is the state of one reader. Its requests are served one after another: the next one may
// arrive before the server knows that the last byte of the previous one was received.
type stream struct {
	turn chan struct{} // holds a token while a request is served

	lease string   // received and not acknowledged; "" if none
	conn  *tracked // connection on which it was sent

	asking int       // requests that are served or waiting; guarded by streams.mu
	used   time.Time // likewise
}

// mostStreams limits how many readers are remembered. Beyond it the least recently active reader is
// removed: its shard is redelivered when the lease expires.
const mostStreams = 4096

// defaultPatience is how long a request waits for its reader's previous request.
const defaultPatience = 5 * time.Second

var errTwoAtOnce = errors.New("this reader is still receiving another shard; use a different reader name for each stream")

// enter waits for the reader's turn. The caller must call leave unless there is an error.
func (s *streams) enter(ctx context.Context, key string) (*stream, error) {
	s.mu.Lock()
	st := s.of[key]
	if st == nil {
		st = s.addLocked(key)
	}
	st.asking++
	patience := cmp.Or(s.patience, defaultPatience)
	s.mu.Unlock()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	var err error
	select {
	case st.turn <- struct{}{}:
		return st, nil
	case <-timeout.C:
		err = errTwoAtOnce
	case <-ctx.Done():
		err = ctx.Err()
	}
	s.mu.Lock()
	st.asking--
	s.mu.Unlock()
	return nil, err
}

func (s *streams) addLocked(key string) *stream {
	if s.of == nil {
		s.of = make(map[string]*stream)
	}
	if len(s.of) >= mostStreams {
		silent := ""
		for k, st := range s.of {
			if st.asking == 0 && (silent == "" || st.used.Before(s.of[silent].used)) {
				silent = k
			}
		}
		delete(s.of, silent)
	}
	st := &stream{turn: make(chan struct{}, 1)}
	s.of[key] = st
	return st
}

func (s *streams) leave(st *stream) {
	<-st.turn
	s.mu.Lock()
	st.asking--
	st.used = time.Now()
	s.mu.Unlock()
}

func (a *API) next(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		fail(w, http.StatusMethodNotAllowed, errors.New("next requires GET"))
		return
	}
	win := a.opened(w, r, forever)
	if win == nil {
		return
	}
	request, err := leaseRequest(r, win)
	if err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	st, err := a.streams.enter(r.Context(), r.PathValue("input")+"/"+request.Reader)
	if err != nil {
		fail(w, http.StatusConflict, fmt.Errorf("reader %s: %w", request.Reader, err))
		return
	}
	defer a.streams.leave(st)
	if err := a.acknowledge(win, st); err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	win, l, b, err := a.nextBody(r, win, request)
	var end *window.EndError
	switch {
	case errors.As(err, &end):
		w.Header().Set("Stager-End", strconv.Itoa(end.Epoch))
		w.Header().Set("Content-Type", "application/x-tar")
		_, _ = w.Write(emptyTar) // a client that is gone retries
		return
	case err != nil:
		leaseFailed(w, r, err)
		return
	}
	a.hand(w, r, win, l, b, st)
}

// forever means as long as the reader waits.
const forever = math.MaxInt64

// acknowledge acknowledges the shard that the reader received last. It returns the lease if the
// reader went away before it had read the whole shard.
func (a *API) acknowledge(win *window.Window, st *stream) error {
	lease := st.lease
	st.lease = ""
	switch {
	case lease == "":
		return nil
	case st.conn != nil && st.conn.wasReset():
		a.giveBack(win, lease, errNotTaken.Error())
		return nil
	}
	if err := win.Ack(lease); err != nil && !errors.Is(err, window.ErrNoLease) {
		st.lease = lease
		return err
	}
	return nil
}

// nextShard waits for a shard as long as the reader does: in a pipe an empty response would look
// like an empty archive. The lease has no time-out while the shard is sent.
func (a *API) nextShard(r *http.Request, win *window.Window, request window.LeaseRequest) (*window.Window, window.Lease, error) {
	request.Wait, request.Bound = time.Hour, true
	for {
		var l window.Lease
		var err error
		win, l, err = a.take(r, win, request)
		var waited *window.WaitError
		switch {
		case errors.Is(err, window.ErrClosed): // see causeEnd
			<-r.Context().Done()
			return win, l, r.Context().Err()
		case !errors.As(err, &waited):
			return win, l, err
		}
	}
}

// errNotTaken reports that the reader did not read the body to its last byte.
var errNotTaken = errors.New("the reader did not receive the whole shard")

// nextBody calls nextShard and opens the shard. If another program removed the file, it is fetched
// again and the reader gets another shard meanwhile.
func (a *API) nextBody(r *http.Request, win *window.Window, request window.LeaseRequest) (*window.Window, window.Lease, body, error) {
	for {
		var l window.Lease
		var err error
		win, l, err = a.nextShard(r, win, request)
		if err != nil {
			return win, l, body{}, err
		}
		b, err := openBody(win, l)
		if err == nil || !errors.Is(err, window.ErrLost) {
			if err != nil {
				a.withdraw(win, l)
				err = fmt.Errorf("cannot open shard %s: %w", l.Name, err)
			}
			return win, l, b, err
		}
	}
}

// hand sends a shard and updates its lease.
func (a *API) hand(w http.ResponseWriter, r *http.Request, win *window.Window, l window.Lease, b body, st *stream) {
	defer b.Close() // opened for reading
	if r.Context().Err() != nil {
		a.withdraw(win, l)
		return
	}
	defer connOf(r).awaitReader()()
	switch err := send(w, r, l, b); {
	case err == nil:
		st.lease, st.conn = l.ID, connOf(r)
		// From here on only the next request shows that the reader is alive.
		if _, err := win.Attach(l.ID, false); err != nil {
			a.Log.Warn("cannot clear the timeout of the lease", "lease", l.ID, "error", err)
		}
	case serverEnds(r):
		// The reader is alive: its lease stays valid for the next process.
	default:
		a.giveBack(win, l.ID, err.Error())
	}
}

// body is the contents of a shard in a stream.
type body struct {
	io.Closer
	kind string
	size int64
	to   func(io.Writer) (int64, error)
}

func openBody(win *window.Window, l window.Lease) (body, error) {
	shard, err := win.Open(l.ID)
	if err != nil {
		return body{}, err
	}
	if root := shard.Tree; root != nil {
		size, err := treeTarSize(root)
		if err != nil {
			return body{}, errors.Join(err, root.Close())
		}
		return body{root, "application/x-tar", size, func(to io.Writer) (int64, error) {
			return size, treeTar(to, root)
		}}, nil
	}
	return body{shard, "application/octet-stream", l.Size, func(to io.Writer) (int64, error) {
		return io.Copy(to, shard.File)
	}}, nil
}

// send sends a shard. It returns nil when the reader has received the last byte.
func send(w http.ResponseWriter, r *http.Request, l window.Lease, b body) error {
	h := w.Header()
	h.Set("Content-Type", b.kind)
	h.Set("Content-Length", strconv.FormatInt(b.size, 10))
	h.Set("Stager-Lease", l.ID)
	h.Set("Stager-Shard", l.Name)
	h.Set("Stager-Epoch", strconv.Itoa(l.Epoch))
	h.Set("Stager-Position", strconv.Itoa(l.Pos))
	h.Set("Stager-Attempt", strconv.Itoa(l.Attempt))
	h.Set("Stager-Skip", strconv.Itoa(l.Skip))
	if n, err := b.to(w); err != nil || n != b.size {
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
