package gsfake

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// FaultKind names a way to fail.
type FaultKind string

// The ways to fail. Some end a request before it has an effect, some after, and some break a body.
const (
	Throttle     FaultKind = "throttle"      // 503 and Retry-After
	TooMany      FaultKind = "too-many"      // 429
	ServerError  FaultKind = "server-error"  // 500
	WebPage      FaultKind = "web-page"      // 502 by another server
	Expired      FaultKind = "expired"       // 401: the token has expired
	Reset        FaultKind = "reset"         // the connection is cut before the request has an effect …
	LoseAnswer   FaultKind = "lose-answer"   // … or after
	Stall        FaultKind = "stall"         // no response, until the client leaves
	Cut          FaultKind = "cut"           // the connection is cut after Bytes of the body
	Slow         FaultKind = "slow"          // 64 KiB of the body every 20 ms
	Flip         FaultKind = "flip"          // a bit of the body is wrong, at Bytes
	FlipUpload   FaultKind = "flip-upload"   // the first byte that is received is wrong
	WrongCRC     FaultKind = "wrong-crc"     // the reported checksum is not that of the bytes
	IgnoreRange  FaultKind = "ignore-range"  // the response has the whole object
	ForgetUpload FaultKind = "forget-upload" // NoSuchUpload
)

// A Fault is injected into requests that match it.
type Fault struct {
	Kind   FaultKind
	Method string // "": any
	Key    string // a part of the key; "": any request
	Param  string // a parameter that the request has; "": any
	Action string // of the JSON API, such as compose; "": any
	Bytes  int64
	Times  int // how often
}

// fits reports whether the fault is for this request. Those of bodies are for objects that are read,
// and are not consumed by others.
func (f *Fault) fits(c *call) bool {
	switch f.Kind {
	case Cut, Slow, Flip, IgnoreRange:
		if c.Method != http.MethodGet || c.key == "" || c.json {
			return false
		}
	}
	return (f.Method == "" || f.Method == c.Method) && strings.Contains(c.key, f.Key) && (f.Param == "" || c.query.Has(f.Param)) &&
		(f.Action == "" || f.Action == c.action)
}

// Fail injects a fault into the next requests that match it.
func (s *Server) Fail(f Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
}

// faultOf takes the first fault that matches.
func (s *Server) faultOf(c *call) *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, f := range s.faults {
		if !f.fits(c) {
			continue
		}
		out := *f
		if f.Times--; f.Times <= 0 {
			s.faults = slices.Delete(s.faults, i, i+1)
		}
		return &out
	}
	return nil
}

// before fails before the request has an effect.
func (f *Fault) before(c *call) error {
	switch f.Kind {
	case Throttle:
		c.w.Header().Set("Retry-After", "1")
		return fail(http.StatusServiceUnavailable, "ServiceUnavailable", "We encountered an internal error. Please try again.")
	case TooMany:
		return fail(http.StatusTooManyRequests, "SlowDown", "The rate of requests to this bucket exceeds the limit.")
	case ServerError:
		return fail(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	case Expired:
		return invalidToken()
	case ForgetUpload:
		return fail(http.StatusNotFound, "NoSuchUpload", "The requested upload was not found.")
	case WebPage:
		c.w.Header().Set("Content-Type", "text/html")
		c.w.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(c.w, "<html><h1>502</h1></html>")
		return errAnswered
	case Reset:
		return http.ErrAbortHandler
	case Stall:
		_, _ = io.Copy(io.Discard, c.Body) // so that the end of the connection is seen
		<-c.Context().Done()
		return http.ErrAbortHandler
	}
	return nil
}

// body breaks a body of n bytes that is sent.
func (f *Fault) body(c *call, from io.Reader, n int64) io.Reader {
	switch f.Kind {
	case Cut:
		return io.MultiReader(io.LimitReader(from, f.Bytes), &broken{c.w})
	case Slow:
		return &slow{from, c}
	case Flip:
		return &flipped{Reader: from, at: min(f.Bytes, n-1)}
	}
	return from
}

// broken sends what is written so far and ends the connection.
type broken struct{ w http.ResponseWriter }

func (b *broken) Read([]byte) (int, error) {
	http.NewResponseController(b.w).Flush() //nolint:errcheck // it ends anyway
	return 0, errors.New("cut")
}

type slow struct {
	io.Reader
	c *call
}

func (s *slow) Read(p []byte) (int, error) {
	select {
	case <-s.c.Context().Done():
		return 0, s.c.Context().Err()
	case <-time.After(20 * time.Millisecond):
	}
	return s.Reader.Read(p[:min(len(p), 64<<10)])
}

// flipped has one wrong bit.
type flipped struct {
	io.Reader
	at int64 // bytes until it
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}
