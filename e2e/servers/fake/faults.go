package fake

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
// The responses to the first are those of the service.
const (
	Throttle     FaultKind = "throttle"      // 503 and Retry-After
	TooMany      FaultKind = "too-many"      // 429
	ServerError  FaultKind = "server-error"  // 500
	Expired      FaultKind = "expired"       // the token has expired
	ForgetUpload FaultKind = "forget-upload" // there is no such upload
	WebPage      FaultKind = "web-page"      // 502 by another server
	Reset        FaultKind = "reset"         // the connection is cut before the request has an effect …
	LoseAnswer   FaultKind = "lose-answer"   // … or after
	Stall        FaultKind = "stall"         // no response, until the client leaves
	Cut          FaultKind = "cut"           // the connection is cut after Bytes of the body
	Slow         FaultKind = "slow"          // 64 KiB of the body every 20 ms
	Flip         FaultKind = "flip"          // a bit of the body is wrong, at Bytes
	FlipUpload   FaultKind = "flip-upload"   // the first byte that is received is wrong
	WrongCRC     FaultKind = "wrong-crc"     // the reported checksum is not that of the bytes
	IgnoreRange  FaultKind = "ignore-range"  // the response has the whole object
)

// A Fault is injected into requests that match it.
type Fault struct {
	Kind   FaultKind
	Method string // "": any
	Key    string // a part of the key; "": any request
	Param  string // a parameter that the request has; "": any
	Action string // such as compose; "": any
	Bytes  int64
	Times  int // how often
}

// matches reports whether the fault is for this request. Those of bodies are for objects that are
// read, and are not consumed by others.
func (f *Fault) matches(c *Call) bool {
	switch f.Kind {
	case Cut, Slow, Flip, IgnoreRange:
		if !c.Reads {
			return false
		}
	}
	return (f.Method == "" || f.Method == c.Method) && strings.Contains(c.Key, f.Key) && (f.Param == "" || c.Query.Has(f.Param)) &&
		(f.Action == "" || f.Action == c.Action)
}

// Fail injects a fault into the next requests that match it.
func (s *Server) Fail(f Fault) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.faults = append(s.faults, &f)
}

// faultOf takes the first fault that matches.
func (s *Server) faultOf(c *Call) *Fault {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	for i, f := range s.faults {
		if !f.matches(c) {
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

// Inject serves the request by do, with the next fault that matches it.
func (c *Call) Inject(do func() error) error {
	if c.fault = c.server.faultOf(c); c.fault != nil {
		if err := c.before(); err != nil {
			return err
		}
	}
	err := do()
	if c.has(LoseAnswer) {
		return http.ErrAbortHandler
	}
	return err
}

// before fails before the request has an effect.
func (c *Call) before() error {
	if answer := c.server.store.Errors[c.fault.Kind]; answer != nil {
		if c.fault.Kind == Throttle {
			c.W.Header().Set("Retry-After", "1")
		}
		return answer()
	}
	switch c.fault.Kind {
	case WebPage:
		c.W.Header().Set("Content-Type", "text/html")
		c.W.WriteHeader(http.StatusBadGateway)
		_, _ = io.WriteString(c.W, "<html><h1>502</h1></html>")
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

// has reports whether the request has a fault of this kind.
func (c *Call) has(kind FaultKind) bool { return c.fault != nil && c.fault.Kind == kind }

// broken returns a body of n bytes with the fault of the request.
func (c *Call) broken(from io.Reader, n int64) io.Reader {
	switch {
	case c.has(Cut):
		return io.MultiReader(io.LimitReader(from, c.fault.Bytes), &cut{c.W})
	case c.has(Slow):
		return &slow{from, c}
	case c.has(Flip):
		return &flipped{Reader: from, at: min(c.fault.Bytes, n-1)}
	}
	return from
}

// cut sends what is written so far and ends the connection.
type cut struct{ w http.ResponseWriter }

func (b *cut) Read([]byte) (int, error) {
	http.NewResponseController(b.w).Flush() //nolint:errcheck // it ends anyway
	return 0, errors.New("cut")
}

type slow struct {
	io.Reader
	c *Call
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
	at int64 // how far off it is
}

func (f *flipped) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if f.at >= 0 && f.at < int64(n) {
		p[f.at] ^= 1
	}
	f.at -= int64(n)
	return n, err
}
