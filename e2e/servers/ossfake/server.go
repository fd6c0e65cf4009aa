package ossfake

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/xml"
	"hash"
	"hash/crc64"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// Options configure a server. The zero value works.
type Options struct {
	fake.Options
	Region   string   // "": cn-hangzhou
	Versions []string // those of Buckets with versioning
	// Now is the clock that requests and tokens are judged by; nil: time.Now.
	Now func() time.Time
}

// Server is a running server.
type Server struct {
	*fake.Server
	Region    string
	AccessKey string
	SecretKey string

	now  func() time.Time
	keys map[string]credential // by access key; guarded by Mu
}

// smallestPart is the minimum size of all parts but the last.
const smallestPart = 100 << 10

// Start starts a server on free ports of this machine.
func Start(opts Options) (_ *Server, err error) {
	s := &Server{
		Region: opts.Region, now: opts.Now, AccessKey: "LTAI" + rand.Text()[:16], SecretKey: rand.Text(), keys: make(map[string]credential),
	}
	if s.Region == "" {
		s.Region = "cn-hangzhou"
	}
	if s.now == nil {
		s.now = time.Now
	}
	s.keys[s.AccessKey] = credential{secret: s.SecretKey}
	if s.Server, err = fake.New(opts.Options); err != nil {
		return nil, err
	}
	for _, name := range opts.Versions {
		if err := s.SetVersioning(name, "Enabled"); err != nil {
			return nil, err
		}
	}
	return s, s.Listen(fake.Store{
		Serve: s.serve, Refuse: refuse, Control: s.control, Errors: errors,
		Sum:    func() hash.Hash { return crc64.New(ecma) },
		Verify: verifySum, Report: report, ETag: etag,
		SmallestPart: smallestPart,
	})
}

// errors are the responses of the service that inject faults.
var errors = map[fake.FaultKind]func() error{
	fake.Throttle: func() error {
		return fake.Fail(http.StatusServiceUnavailable, "SlowDown", "Please reduce your request rate.")
	},
	fake.ServerError: func() error {
		return fake.Fail(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	},
	fake.Expired: func() error {
		return fake.Fail(http.StatusForbidden, "SecurityTokenExpired", "The security token you provided has expired.")
	},
	fake.ForgetUpload: func() error {
		return fake.Fail(http.StatusNotFound, "NoSuchUpload", "The specified upload does not exist.")
	},
}

// failure is an error response.
type failure struct {
	XMLName   xml.Name `xml:"Error"`
	Code      string
	Message   string
	RequestID string `xml:"RequestId"`
	HostID    string `xml:"HostId"`
}

// requestID is the header with the name of a request.
const requestID = "X-Oss-Request-Id"

// refuse sends an error response.
func refuse(c *fake.Call, f *fake.Failure) {
	h := c.W.Header()
	text, _ := xml.Marshal(failure{Code: f.Code, Message: f.Message, RequestID: h.Get(requestID), HostID: c.Host}) // it is made of strings
	text = append([]byte(xml.Header), text...)
	h.Set("Content-Type", "application/xml")
	h.Del("Content-Length")
	h.Del("ETag")
	if c.Method == http.MethodHead {
		h.Set("x-oss-err", base64.StdEncoding.EncodeToString(text))
	}
	c.W.WriteHeader(f.Status)
	if c.Method != http.MethodHead {
		_, _ = c.W.Write(text) // the client may have left
	}
}

// parameters are those that are known. A request with another is refused.
var parameters = map[string]bool{
	"versioning": true, "uploads": true, "uploadId": true, "partNumber": true, "list-type": true, "prefix": true,
	"start-after": true, "continuation-token": true, "max-keys": true, "encoding-type": true,
	"marker": true, "delimiter": true,
	"max-uploads": true, "key-marker": true, "upload-id-marker": true, "max-parts": true, "part-number-marker": true,
}

// A call is one request.
type call struct {
	*fake.Call
	s *Server
}

func (s *Server) serve(request *fake.Call) error {
	request.W.Header().Set("Server", "AliyunOSS")
	request.W.Header().Set(requestID, rand.Text()[:24])
	c := &call{request, s}
	if err := c.locate(); err != nil {
		return err
	}
	c.Count("")
	for name := range c.Query {
		if !parameters[name] {
			return fake.Fail(http.StatusNotImplemented, "NotImplemented", "The parameter %q is not known here.", name)
		}
	}
	who, err := s.verify(c.Request, c.Name, c.Key)
	if err != nil {
		return err
	}
	if c.Name == "" {
		return c.listBuckets(who)
	}
	if err := c.Enter(); err != nil {
		return err
	}
	if who == "" && (!c.Bucket.Public || c.Method != http.MethodGet && c.Method != http.MethodHead || c.Query.Has("versioning") || c.Query.Has("uploads")) {
		return fake.Fail(http.StatusForbidden, "AccessDenied", "You have no right to access this object because of bucket acl.")
	}
	return c.Inject(c.dispatch)
}

// locate finds bucket and key: in the path for an address, in the host otherwise.
func (c *call) locate() (err error) {
	host := c.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	path := strings.TrimPrefix(c.URL.EscapedPath(), "/")
	if net.ParseIP(host) != nil {
		c.Name, path, _ = strings.Cut(path, "/")
	} else {
		c.Name, _, _ = strings.Cut(host, ".")
	}
	if c.Key, err = url.PathUnescape(path); err != nil {
		return fake.Fail(http.StatusBadRequest, "InvalidObjectName", "The object name cannot be decoded.")
	}
	c.Reads = c.Method == http.MethodGet && c.Key != ""
	return nil
}

func (c *call) dispatch() error {
	if c.Key == "" {
		switch {
		case c.Method == http.MethodGet && c.Query.Has("versioning"):
			return c.versioning()
		case c.Method == http.MethodGet && c.Query.Has("uploads"):
			return c.ListUploads()
		case c.Method == http.MethodGet && (c.Query.Get("list-type") == "2" || !c.Query.Has("list-type")):
			return c.list()
		}
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This request to a bucket is not known here.")
	}
	if len(c.Key) > 1023 || c.Key[0] == '/' || c.Key[0] == '\\' {
		return fake.Fail(http.StatusBadRequest, "InvalidObjectName", "The specified object is not valid.")
	}
	if ok, err := c.Uploads(metaPrefix, c.completeUpload); ok {
		return err
	}
	switch {
	case len(c.Query) > 0:
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "These parameters are not known together here.")
	case c.Method == http.MethodGet, c.Method == http.MethodHead:
		return c.get()
	case c.Method == http.MethodPut:
		return c.put()
	case c.Method == http.MethodDelete:
		if !c.Delete() {
			c.W.WriteHeader(http.StatusNoContent)
		}
		return nil
	}
	return fake.Fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}
