package ossfake

import (
	"crypto/rand"
	"crypto/tls"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// Options say what server is wanted. The zero value works.
type Options struct {
	Region   string   // "": cn-hangzhou
	Dir      string   // where objects lie
	Buckets  []string // none: one named "test"
	Public   []string // those of Buckets that anybody may read
	Versions []string // those of Buckets with versioning
	// Cert and Key are PEM files of a certificate; both empty for plain HTTP.
	Cert, Key string
	// Now is the clock that requests and tokens are judged by; nil: time.Now.
	Now func() time.Time
}

// Server is a running double.
type Server struct {
	Endpoint  string // its URL
	Control   string // the URL of its other face: faults, tokens, and the metadata of an instance
	Region    string
	AccessKey string
	SecretKey string

	dir  string
	now  func() time.Time
	tls  *tls.Config  // nil: plain HTTP
	back *http.Server // behind Control

	mu      sync.Mutex   // guards all below
	front   *http.Server // behind Endpoint; nil while it is down
	closed  bool
	thaw    chan struct{} // closed when it is no longer frozen; nil when it is not
	buckets map[string]*bucket
	keys    map[string]credential // by access key
	faults  []*Fault
	counts  map[string]int
	ttl     time.Duration // of the next tokens
}

// Start starts a server on free ports of this machine.
func Start(opts Options) (_ *Server, err error) {
	s := &Server{
		Region: opts.Region, dir: opts.Dir, now: opts.Now, AccessKey: "LTAI" + rand.Text()[:16], SecretKey: rand.Text(),
		buckets: make(map[string]*bucket), keys: make(map[string]credential), counts: make(map[string]int), ttl: time.Hour,
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.Region == "" {
		s.Region = "cn-hangzhou"
	}
	if s.now == nil {
		s.now = time.Now
	}
	if len(opts.Buckets) == 0 {
		opts.Buckets = []string{"test"}
	}
	for _, name := range opts.Buckets {
		s.buckets[name] = &bucket{objects: make(map[string]*object), uploads: make(map[string]*upload)}
	}
	for _, name := range slices.Concat(opts.Public, opts.Versions) {
		if s.buckets[name] == nil {
			return nil, fmt.Errorf("unknown bucket %q", name)
		}
		s.buckets[name].public = s.buckets[name].public || slices.Contains(opts.Public, name)
		if slices.Contains(opts.Versions, name) {
			s.buckets[name].versioning = "Enabled"
		}
	}
	s.keys[s.AccessKey] = credential{secret: s.SecretKey}
	s.Endpoint, s.Control = "http://", "http://"
	if opts.Cert != "" {
		pair, err := tls.LoadX509KeyPair(opts.Cert, opts.Key)
		if err != nil {
			return nil, err
		}
		s.Endpoint, s.tls = "https://", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	var front, back string
	address, err := ports.Free("127.0.0.1") // it may go down, and comes back there
	if err != nil {
		return nil, err
	}
	if s.front, front, err = serve(address, http.HandlerFunc(s.answer), s.tls); err != nil {
		return nil, err
	}
	s.back, back, err = serve("127.0.0.1:0", s.control(), nil)
	s.Endpoint, s.Control = s.Endpoint+front, s.Control+back
	return s, err
}

// serve listens at address, and tells at which.
func serve(address string, h http.Handler, secure *tls.Config) (*http.Server, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	address = l.Addr().String()
	hs := &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSNextProto: make(map[string]func(*http.Server, *tls.Conn, http.Handler)), // OSS speaks HTTP/1.1
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	go hs.Serve(l) //nolint:errcheck // it ends with Close
	return hs, address, nil
}

// Close ends the server, and removes the directory that Start made.
func (s *Server) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	var errs []error
	for _, hs := range []*http.Server{s.front, s.back} {
		if hs != nil {
			errs = append(errs, hs.Close())
		}
	}
	return errors.Join(errs...)
}

// failure is an answer that says no.
type failure struct {
	XMLName   xml.Name `xml:"Error"`
	Status    int      `xml:"-"`
	Code      string
	Message   string
	RequestID string `xml:"RequestId"`
	HostID    string `xml:"HostId"`
}

func (f *failure) Error() string { return f.Code }

func fail(status int, code, format string, args ...any) *failure {
	return &failure{Status: status, Code: code, Message: fmt.Sprintf(format, args...)}
}

// errAnswered says that nothing is left to answer.
var errAnswered = errors.New("answered")

// query are the parameters that the double knows; a request with another is
// refused, so that none goes unheeded.
var query = map[string]bool{
	"versioning": true, "uploads": true, "uploadId": true, "partNumber": true, "list-type": true, "prefix": true,
	"start-after": true, "continuation-token": true, "max-keys": true, "encoding-type": true,
	"marker": true, "delimiter": true,
	"max-uploads": true, "key-marker": true, "upload-id-marker": true, "max-parts": true, "part-number-marker": true,
}

// A call is one request that was verified.
type call struct {
	*http.Request
	s      *Server
	w      http.ResponseWriter
	name   string // of the bucket
	bucket *bucket
	key    string
	query  url.Values
	fault  *Fault // to go wrong by; nil: none
}

// answer serves one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	gate := &freezing{w, s, r}
	gate.wait()
	w = gate
	request := rand.Text()[:24]
	w.Header().Set("Server", "AliyunOSS")
	w.Header().Set("x-oss-request-id", request)
	c := &call{Request: r, s: s, w: w, query: r.URL.Query()}
	err := c.serve()
	if err == nil || errors.Is(err, errAnswered) {
		return
	}
	if errors.Is(err, http.ErrAbortHandler) {
		panic(err) // the connection is cut
	}
	var f *failure
	if !errors.As(err, &f) {
		f = fail(http.StatusInternalServerError, "InternalError", "%v", err)
	}
	f.RequestID, f.HostID = request, r.Host
	text, _ := xml.Marshal(f) // it is made of strings
	text = append([]byte(xml.Header), text...)
	w.Header().Set("Content-Type", "application/xml")
	w.Header().Del("Content-Length")
	w.Header().Del("ETag")
	if r.Method == http.MethodHead {
		w.Header().Set("x-oss-err", base64.StdEncoding.EncodeToString(text))
	}
	w.WriteHeader(f.Status)
	if r.Method != http.MethodHead {
		_, _ = w.Write(text)
	}
}

func (c *call) serve() error {
	if err := c.locate(); err != nil {
		return err
	}
	c.s.count(c)
	for name := range c.query {
		if !query[name] {
			return fail(http.StatusNotImplemented, "NotImplemented", "The parameter %q is not known here.", name)
		}
	}
	who, err := c.s.verify(c.Request, c.name, c.key)
	if err != nil {
		return err
	}
	c.s.mu.Lock()
	c.bucket = c.s.buckets[c.name]
	c.s.mu.Unlock()
	if c.bucket == nil {
		return fail(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
	}
	if who == "" && (!c.bucket.public || c.Method != http.MethodGet && c.Method != http.MethodHead || c.query.Has("versioning") || c.query.Has("uploads")) {
		return fail(http.StatusForbidden, "AccessDenied", "You have no right to access this object because of bucket acl.")
	}
	if c.fault = c.s.faultOf(c); c.fault != nil {
		if err := c.fault.before(c); err != nil {
			return err
		}
	}
	err = c.dispatch()
	if c.fault != nil && c.fault.Kind == LoseAnswer {
		return http.ErrAbortHandler
	}
	return err
}

// locate finds bucket and key: in the path for an address, in the host otherwise.
func (c *call) locate() (err error) {
	host := c.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	path := strings.TrimPrefix(c.URL.EscapedPath(), "/")
	if net.ParseIP(host) != nil {
		c.name, path, _ = strings.Cut(path, "/")
	} else {
		c.name, _, _ = strings.Cut(host, ".")
	}
	if c.key, err = url.PathUnescape(path); err != nil {
		return fail(http.StatusBadRequest, "InvalidObjectName", "The object name cannot be decoded.")
	}
	if c.name == "" {
		return fail(http.StatusNotImplemented, "NotImplemented", "Requests to no bucket are not known here.")
	}
	return nil
}

func (c *call) dispatch() error {
	upload, multi := c.query["uploadId"]
	if c.key == "" {
		switch {
		case c.Method == http.MethodGet && c.query.Has("versioning"):
			return c.versioning()
		case c.Method == http.MethodGet && c.query.Has("uploads"):
			return c.listUploads()
		case c.Method == http.MethodGet && (c.query.Get("list-type") == "2" || !c.query.Has("list-type")):
			return c.list()
		}
		return fail(http.StatusNotImplemented, "NotImplemented", "This request to a bucket is not known here.")
	}
	if len(c.key) > 1023 || c.key[0] == '/' || c.key[0] == '\\' {
		return fail(http.StatusBadRequest, "InvalidObjectName", "The specified object is not valid.")
	}
	switch {
	case c.Method == http.MethodPost && c.query.Has("uploads"):
		return c.beginUpload()
	case c.Method == http.MethodPut && multi:
		return c.putPart(upload[0])
	case c.Method == http.MethodPost && multi:
		return c.completeUpload(upload[0])
	case c.Method == http.MethodGet && multi:
		return c.listParts(upload[0])
	case c.Method == http.MethodDelete && multi:
		return c.abortUpload(upload[0])
	case len(c.query) > 0:
		return fail(http.StatusNotImplemented, "NotImplemented", "These parameters are not known together here.")
	case c.Method == http.MethodGet, c.Method == http.MethodHead:
		return c.get()
	case c.Method == http.MethodPut:
		return c.put()
	case c.Method == http.MethodDelete:
		return c.delete()
	}
	return fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

// xml answers with a document.
func (c *call) xml(v any) error {
	text, err := xml.Marshal(v)
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", "application/xml")
	_, _ = io.WriteString(c.w, xml.Header)
	_, _ = c.w.Write(text)
	return nil
}
