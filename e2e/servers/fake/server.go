package fake

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"hash"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// Options configure a server. The zero value works.
type Options struct {
	Dir     string   // where objects are stored
	Buckets []string // none: one named "test"
	Public  []string // those of Buckets that anybody may read
	// Cert and Key are PEM files of a certificate; both empty for plain HTTP.
	Cert, Key string
}

// Store is what a service does in a way of its own.
type Store struct {
	Serve        func(*Call) error            // serves a request, or returns an error
	Refuse       func(*Call, *Failure)        // sends an error response
	Control      func(*http.ServeMux)         // adds to the control API
	Errors       map[FaultKind]func() error   // the responses that inject a fault
	Sum          func() hash.Hash             // the checksum of objects
	Verify       func(c *Call, p Piece) error // compares the checksums of a request with the bytes
	Report       func(c *Call, sum []byte)    // sets the checksum of a response
	ETag         func(md5 []byte) string      // of a part
	SmallestPart int64                        // the minimum size of all parts but the last
}

// Server is a running server.
type Server struct {
	Endpoint string // its URL
	Control  string // the URL of the control API

	store Store
	dir   string
	tls   *tls.Config  // nil: plain HTTP
	back  *http.Server // behind Control

	Mu      sync.Mutex // guards the fields below
	Buckets map[string]*Bucket
	TTL     time.Duration // of the next tokens
	front   *http.Server  // behind Endpoint; nil while it is down
	closed  bool
	thaw    chan struct{} // closed when it is no longer frozen; nil when it is not
	faults  []*Fault
	counts  map[string]int
}

// New returns a server that does not listen yet.
func New(opts Options) (*Server, error) {
	s := &Server{dir: opts.Dir, Buckets: make(map[string]*Bucket), counts: make(map[string]int), TTL: time.Hour}
	if len(opts.Buckets) == 0 {
		opts.Buckets = []string{"test"}
	}
	for _, name := range opts.Buckets {
		s.Buckets[name] = &Bucket{Objects: make(map[string]*Object), uploads: make(map[string]*upload)}
	}
	for _, name := range opts.Public {
		if s.Buckets[name] == nil {
			return nil, fmt.Errorf("there is no bucket %q to be public", name)
		}
		s.Buckets[name].Public = true
	}
	if opts.Cert != "" {
		pair, err := tls.LoadX509KeyPair(opts.Cert, opts.Key)
		if err != nil {
			return nil, err
		}
		s.tls = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	return s, nil
}

// Listen starts the server on free ports of this machine.
func (s *Server) Listen(store Store) (err error) {
	s.store = store
	address, err := ports.Free("127.0.0.1") // it may go down, and returns there
	if err != nil {
		return err
	}
	if s.front, address, err = serve(address, http.HandlerFunc(s.answer), s.tls); err != nil {
		return err
	}
	s.Endpoint = "http://" + address
	if s.tls != nil {
		s.Endpoint = "https://" + address
	}
	if s.back, address, err = serve("127.0.0.1:0", s.control(), nil); err != nil {
		return errors.Join(err, s.Close())
	}
	s.Control = "http://" + address
	return nil
}

// serve listens at address and returns the actual one.
func serve(address string, h http.Handler, secure *tls.Config) (*http.Server, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	address = l.Addr().String()
	hs := &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSNextProto: make(map[string]func(*http.Server, *tls.Conn, http.Handler)), // HTTP/1.1, as OSS
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	go hs.Serve(l) //nolint:errcheck // it ends with Close
	return hs, address, nil
}

// Close ends the server.
func (s *Server) Close() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	s.closed = true
	var errs []error
	for _, hs := range []*http.Server{s.front, s.back} {
		if hs != nil {
			errs = append(errs, hs.Close())
		}
	}
	return errors.Join(errs...)
}

// Kill breaks all connections, and new ones are refused.
func (s *Server) Kill() error {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.front == nil {
		return errors.New("it is down already")
	}
	err := s.front.Close()
	s.front = nil
	return err
}

// Start listens again after Kill, at the same address.
func (s *Server) Start(context.Context) (err error) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	if s.closed || s.front != nil {
		return nil
	}
	_, address, _ := strings.Cut(s.Endpoint, "://")
	s.front, _, err = serve(address, http.HandlerFunc(s.answer), s.tls)
	return err
}

// Down refuses connections for a while.
func (s *Server) Down(d time.Duration) error {
	err := s.Kill()
	if err == nil {
		time.AfterFunc(d, func() { _ = s.Start(context.Background()) }) // whoever misses it sees it
	}
	return err
}

// Failure is an error response.
type Failure struct {
	Status        int
	Code, Message string
}

func (f *Failure) Error() string { return f.Code }

// Fail returns a Failure.
func Fail(status int, code, format string, args ...any) *Failure {
	return &Failure{status, code, fmt.Sprintf(format, args...)}
}

// errAnswered means that the response was sent.
var errAnswered = errors.New("answered")

// A Call is one request.
type Call struct {
	*http.Request
	W      http.ResponseWriter
	Query  url.Values
	Name   string // of the bucket
	Bucket *Bucket
	Key    string
	Action string // beyond method and parameters, such as compose
	Reads  bool   // the response is the bytes of an object

	server *Server
	fault  *Fault // nil: none
}

// answer serves one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	gate := &freezing{w, s, r}
	gate.wait()
	c := &Call{Request: r, W: gate, Query: r.URL.Query(), server: s}
	err := s.store.Serve(c)
	var f *Failure
	switch {
	case err == nil, errors.Is(err, errAnswered):
		return
	case errors.Is(err, http.ErrAbortHandler):
		panic(err) // the connection is cut
	case !errors.As(err, &f):
		f = Fail(http.StatusInternalServerError, "InternalError", "%v", err)
	}
	s.store.Refuse(c, f)
}

// Count records a request by a prefix, its method and its parameters.
func (c *Call) Count(prefix string) {
	c.server.Mu.Lock()
	defer c.server.Mu.Unlock()
	c.server.counts[strings.TrimSpace(prefix+c.Method+" "+strings.Join(slices.Sorted(maps.Keys(c.Query)), ","))]++
}

// Enter finds the bucket of the request.
func (c *Call) Enter() error {
	c.server.Mu.Lock()
	c.Bucket = c.server.Buckets[c.Name]
	c.server.Mu.Unlock()
	if c.Bucket == nil {
		return Fail(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
	}
	return nil
}
