package objectstore

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

const (
	// shortBody is the maximum size of a body that is sent together with the head, before the
	// response is read.
	shortBody = 256 << 10
	// copyBody is the write size for longer bodies: small enough to show progress on a slow link.
	copyBody = 64 << 10
)

// bodies are buffers for request bodies.
var bodies = sync.Pool{New: func() any { return new([shortBody]byte) }}

// length returns the size of a body; nil has none.
func length(body *backends.Part) int64 {
	if body == nil {
		return 0
	}
	return body.Size()
}

// exchange sends the request head in out and the body, and reads the response head. If there is a
// response, broken is the error that kept the request from being sent completely.
func (w *connection) exchange(req *http.Request, body *backends.Part) (res *http.Response, broken, err error) {
	if length(body) > shortBody {
		return w.sendBody(req, body)
	}
	w.parts = append(w.whole[:0], w.out)
	if length(body) > 0 {
		buf := bodies.Get().(*[shortBody]byte)
		defer bodies.Put(buf)
		short := buf[:body.Size()]
		if n, err := body.ReadAt(short, 0); n < len(short) {
			return nil, nil, err
		}
		w.parts = append(w.parts, short)
	}
	_, broken = w.parts.WriteTo(w.conn)
	if res, err = w.readResponse(req); err != nil { // the response may explain why the server stopped reading
		return nil, nil, cmp.Or(broken, err)
	}
	return res, broken, nil
}

// sendBody is exchange for a long body. It reads the response concurrently, because a server that
// rejects the request may respond before all of it is sent.
func (w *connection) sendBody(req *http.Request, body *backends.Part) (res *http.Response, broken, err error) {
	var unheard error
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		res, unheard = w.readResponse(req)       //nolint:bodyclose // who asked does, or the connection ends
		w.conn.SetWriteDeadline(time.Unix(1, 0)) //nolint:errcheck // then it is closed
	}()
	if _, broken = w.conn.Write(w.out); broken == nil {
		broken, err = w.copyBody(req.Context(), body)
	}
	if err != nil {
		w.conn.Close() //nolint:errcheck // the server waits for the rest, and has no answer
	}
	<-heard
	switch {
	case err != nil:
	case unheard != nil:
		err = unheard
	case broken == nil:
		err = w.conn.SetWriteDeadline(time.Time{})
	}
	return res, broken, err
}

// copyBody sends a body, with sendfile if possible. It returns errors of reading the body apart
// from errors of the connection (broken).
func (w *connection) copyBody(ctx context.Context, body *backends.Part) (broken, err error) {
	at := int64(0)
	if w.client.tls == nil && w.socket.raw != nil {
		if at, err = body.SendFile(ctx, w.socket.sendFile); !errors.Is(err, errors.ErrUnsupported) {
			return nil, err
		}
	}
	buf := bodies.Get().(*[shortBody]byte)
	defer bodies.Put(buf)
	for at < body.Size() {
		piece := buf[:min(copyBody, body.Size()-at)]
		n, err := body.ReadAt(piece, at)
		if n > 0 {
			if _, broken := w.conn.Write(piece[:n]); broken != nil {
				return broken, nil
			}
			backends.Moved(ctx)
		}
		if err != nil {
			return nil, err
		}
		at += int64(n)
	}
	return nil, nil
}
