package gsfake

import (
	"crypto/rsa"
	"crypto/tls"
	"encoding/json"
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

// Options configure a server. The zero value works.
type Options struct {
	Dir     string   // where objects are stored
	Buckets []string // none: one named "test"
	Public  []string // those of Buckets that anybody may read
	// Cert and Key are PEM files of a certificate; both empty for plain HTTP.
	Cert, Key string
}

// Server is a running server.
type Server struct {
	Endpoint string // its URL
	Control  string // the URL for faults, tokens and the metadata of a machine

	dir    string
	signer *rsa.PrivateKey // of the service account
	tls    *tls.Config     // nil: plain HTTP
	back   *http.Server    // behind Control

	mu         sync.Mutex   // guards the fields below
	front      *http.Server // behind Endpoint; nil while it is down
	closed     bool
	thaw       chan struct{} // closed when it is no longer frozen; nil when it is not
	buckets    map[string]*bucket
	tokens     map[string]time.Time // expiry by access token
	faults     []*Fault
	counts     map[string]int
	ttl        time.Duration // of the next tokens
	generation int64         // of the last object
}

// Project is the project of the service account and the buckets.
const Project = "stager-test"

// Start starts a server on free ports of this machine.
func Start(opts Options) (_ *Server, err error) {
	s := &Server{
		dir: opts.Dir, buckets: make(map[string]*bucket), tokens: make(map[string]time.Time), counts: make(map[string]int),
		ttl: time.Hour, generation: time.Now().UnixMicro(),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if len(opts.Buckets) == 0 {
		opts.Buckets = []string{"test"}
	}
	for _, name := range opts.Buckets {
		s.buckets[name] = &bucket{public: slices.Contains(opts.Public, name), objects: make(map[string]*object), uploads: make(map[string]*upload)}
	}
	for _, name := range opts.Public {
		if s.buckets[name] == nil {
			return nil, fmt.Errorf("there is no bucket %q to be public", name)
		}
	}
	if s.signer, err = newSigner(); err != nil {
		return nil, err
	}
	s.Endpoint, s.Control = "http://", "http://"
	if opts.Cert != "" {
		pair, err := tls.LoadX509KeyPair(opts.Cert, opts.Key)
		if err != nil {
			return nil, err
		}
		s.Endpoint, s.tls = "https://", &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	}
	var front, back string
	address, err := ports.Free("127.0.0.1") // it may go down, and returns there
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

// serve listens at address and returns the actual one.
func serve(address string, h http.Handler, secure *tls.Config) (*http.Server, string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	address = l.Addr().String()
	hs := &http.Server{
		Handler: h, ErrorLog: log.New(io.Discard, "", 0), ReadHeaderTimeout: time.Minute,
		TLSNextProto: make(map[string]func(*http.Server, *tls.Conn, http.Handler)),
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	go hs.Serve(l) //nolint:errcheck // it ends with Close
	return hs, address, nil
}

// Close ends the server.
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

// failure is an error response.
type failure struct {
	status        int
	code, message string // code is that of XML; JSON has a reason by status
}

func (f *failure) Error() string { return f.code }

func fail(status int, code, format string, args ...any) *failure {
	return &failure{status, code, fmt.Sprintf(format, args...)}
}

// errAnswered means that the response was sent.
var errAnswered = errors.New("answered")

// A call is one request.
type call struct {
	*http.Request
	s      *Server
	w      http.ResponseWriter
	json   bool // it is of the JSON API
	name   string
	bucket *bucket
	key    string
	action string // of the JSON API, after the key
	query  url.Values
	fault  *Fault // nil: none
}

// answer serves one request.
func (s *Server) answer(w http.ResponseWriter, r *http.Request) {
	gate := &freezing{w, s, r}
	gate.wait()
	w = gate
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
	c.refuse(f)
}

// reasons are those of the JSON API.
var reasons = map[int]string{
	http.StatusBadRequest: "invalid", http.StatusUnauthorized: "authError", http.StatusForbidden: "forbidden", http.StatusNotFound: "notFound",
	http.StatusPreconditionFailed: "conditionNotMet", http.StatusTooManyRequests: "rateLimitExceeded", http.StatusServiceUnavailable: "backendError",
}

// refuse sends an error response.
func (c *call) refuse(f *failure) {
	for _, name := range []string{"Content-Length", "ETag", "X-Goog-Hash", "X-Goog-Generation", "Content-Encoding"} {
		c.w.Header().Del(name)
	}
	var text []byte
	if c.json {
		c.w.Header().Set("Content-Type", "application/json; charset=UTF-8")
		text, _ = json.Marshal(map[string]any{"error": map[string]any{ // it is made of strings
			"code": f.status, "message": f.message, "errors": []map[string]string{{"domain": "global", "reason": reasons[f.status], "message": f.message}},
		}})
	} else {
		c.w.Header().Set("Content-Type", "application/xml; charset=UTF-8")
		text, _ = xml.Marshal(struct { // the same
			XMLName       xml.Name `xml:"Error"`
			Code, Message string
		}{Code: f.code, Message: f.message})
		text = append([]byte(xml.Header), text...)
	}
	c.w.WriteHeader(f.status)
	if c.Method != http.MethodHead {
		_, _ = c.w.Write(text)
	}
}

func (c *call) serve() error {
	if err := c.locate(); err != nil {
		return err
	}
	c.s.count(c)
	if err := c.known(); err != nil {
		return err
	}
	who, err := c.s.verify(c.Request)
	if err != nil {
		return err
	}
	if c.name == "" {
		return c.listBuckets(who)
	}
	c.s.mu.Lock()
	c.bucket = c.s.buckets[c.name]
	c.s.mu.Unlock()
	if c.bucket == nil {
		return fail(http.StatusNotFound, "NoSuchBucket", "The specified bucket does not exist.")
	}
	if !who && (!c.bucket.public || c.Method != http.MethodGet && c.Method != http.MethodHead || c.query.Has("uploads")) {
		status := http.StatusForbidden
		if c.json {
			status = http.StatusUnauthorized
		}
		return fail(status, "AccessDenied", "Anonymous caller does not have access to the Google Cloud Storage bucket.")
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

// locate finds the bucket and the key in the path.
func (c *call) locate() error {
	path := strings.TrimPrefix(c.URL.EscapedPath(), "/")
	rest, ok := strings.CutPrefix(path, "storage/v1/b")
	if c.json = ok; ok {
		parts := strings.Split(strings.TrimPrefix(rest, "/"), "/")
		switch {
		case rest == "":
			return nil
		case len(parts) == 2 && parts[1] == "o":
		case len(parts) >= 3 && len(parts) <= 4 && parts[1] == "o":
			c.key = parts[2]
			c.action = strings.Join(parts[3:], "")
		default:
			return fail(http.StatusNotImplemented, "NotImplemented", "This path of the JSON API is not known here.")
		}
		c.name = parts[0]
	} else {
		c.name, c.key, _ = strings.Cut(path, "/")
	}
	var err error
	if c.key, err = url.PathUnescape(c.key); err != nil || c.name == "" {
		return fail(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
	}
	return nil
}

// parameters are those that are known, of each API.
var parameters = map[bool][]string{
	true:  {"prefix", "maxResults", "fields", "pageToken", "matchGlob", "ifGenerationMatch", "project"},
	false: {"uploads", "uploadId", "partNumber", "prefix", "max-uploads", "encoding-type", "key-marker", "upload-id-marker", "max-parts", "part-number-marker"},
}

// headers are those beginning with X-Goog- that are known.
var headers = []string{"X-Goog-Hash", "X-Goog-If-Generation-Match", "X-Goog-User-Project"}

// known refuses parameters and headers that would be ignored.
func (c *call) known() error {
	for name := range c.query {
		if !slices.Contains(parameters[c.json], name) {
			return fail(http.StatusNotImplemented, "NotImplemented", "The parameter %q is not known here.", name)
		}
	}
	for name := range c.Header {
		if strings.HasPrefix(name, "X-Goog-") && !strings.HasPrefix(name, "X-Goog-Meta-") && !slices.Contains(headers, name) {
			return fail(http.StatusNotImplemented, "NotImplemented", "The header %q is not known here.", name)
		}
	}
	conditional := c.Header.Get("X-Goog-If-Generation-Match") != "" || c.query.Has("ifGenerationMatch")
	if conditional && (c.query.Has("uploads") || c.query.Has("uploadId")) {
		return fail(http.StatusBadRequest, "InvalidArgument", "Preconditions are not supported in multipart uploads.")
	}
	return nil
}

func (c *call) dispatch() error {
	if c.key == "" {
		switch {
		case c.Method == http.MethodGet && c.json:
			return c.list()
		case c.Method == http.MethodGet && c.query.Has("uploads"):
			return c.listUploads()
		}
		return fail(http.StatusNotImplemented, "NotImplemented", "This request to a bucket is not known here.")
	}
	if err := validKey(c.key); err != nil {
		return err
	}
	if c.json {
		switch {
		case c.Method == http.MethodPost && c.action == "compose":
			return c.compose()
		case c.action != "":
		case c.Method == http.MethodGet:
			return c.describe()
		case c.Method == http.MethodDelete:
			return c.delete()
		}
		return fail(http.StatusNotImplemented, "NotImplemented", "This request of the JSON API is not known here.")
	}
	return c.inXML()
}

// inXML serves the requests of the XML API for objects.
func (c *call) inXML() error {
	upload, multi := c.query["uploadId"]
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
	}
	return fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

// send sends a document.
func (c *call) send(v any) error {
	text, err := json.Marshal(v)
	kind := "application/json; charset=UTF-8"
	if !c.json {
		text, err = xml.Marshal(v)
		kind = "application/xml; charset=UTF-8"
	}
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Type", kind)
	_, _ = c.w.Write(text)
	return nil
}
