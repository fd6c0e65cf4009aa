package gsfake

import (
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"encoding/xml"
	"hash"
	"hash/crc32"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// Server is a running server.
type Server struct {
	*fake.Server
	signer *rsa.PrivateKey // of the service account
	noXML  bool            // it has the JSON API alone

	// The fields below are guarded by Mu.
	tokens     map[string]time.Time // expiry by access token
	generation int64                // of the last object
}

// Project is the project of the service account and the buckets.
const Project = "stager-test"

// smallestPart is the minimum size of all parts but the last.
const smallestPart = 5 << 20

// Start starts a server on free ports of this machine. With noXML it has the JSON API alone.
func Start(opts fake.Options, noXML bool) (_ *Server, err error) {
	s := &Server{noXML: noXML, tokens: make(map[string]time.Time), generation: time.Now().UnixMicro()}
	if s.signer, err = newSigner(); err != nil {
		return nil, err
	}
	if s.Server, err = fake.New(opts); err != nil {
		return nil, err
	}
	return s, s.Listen(fake.Store{
		Serve: s.serve, Refuse: s.refuse, Control: s.control, Errors: errors,
		Sum:    func() hash.Hash { return crc32.New(castagnoli) },
		Verify: verifySums, Report: report, ETag: etag,
		SmallestPart: smallestPart,
	})
}

// errors are the responses of the service that inject faults.
var errors = map[fake.FaultKind]func() error{
	fake.Throttle: func() error {
		return fake.Fail(http.StatusServiceUnavailable, "ServiceUnavailable", "We encountered an internal error. Please try again.")
	},
	fake.TooMany: func() error {
		return fake.Fail(http.StatusTooManyRequests, "SlowDown", "The rate of requests to this bucket exceeds the limit.")
	},
	fake.ServerError: func() error {
		return fake.Fail(http.StatusInternalServerError, "InternalError", "We encountered an internal error. Please try again.")
	},
	fake.Expired: func() error { return invalidToken() },
	fake.ForgetUpload: func() error {
		return fake.Fail(http.StatusNotFound, "NoSuchUpload", "The requested upload was not found.")
	},
}

// A call is one request.
type call struct {
	*fake.Call
	s    *Server
	json bool // it is of the JSON API
}

// inJSON returns the path of a request in the JSON API. ok is false for the XML API.
func inJSON(r *http.Request) (path string, ok bool) {
	path, _ = inUpload(r.URL.EscapedPath())
	return strings.CutPrefix(path, "/storage/v1/b")
}

// reasons are those of the JSON API.
var reasons = map[int]string{
	http.StatusBadRequest: "invalid", http.StatusUnauthorized: "authError", http.StatusForbidden: "forbidden", http.StatusNotFound: "notFound",
	http.StatusPreconditionFailed: "conditionNotMet", http.StatusTooManyRequests: "rateLimitExceeded", http.StatusServiceUnavailable: "backendError",
}

// refuse sends an error response.
func (s *Server) refuse(c *fake.Call, f *fake.Failure) {
	for _, name := range []string{"Content-Length", "ETag", "X-Goog-Hash", "X-Goog-Generation", "Content-Encoding"} {
		c.W.Header().Del(name)
	}
	var text []byte
	if _, ok := inJSON(c.Request); ok || s.noXML {
		c.W.Header().Set("Content-Type", "application/json; charset=UTF-8")
		text, _ = json.Marshal(map[string]any{"error": map[string]any{ // it is made of strings
			"code": f.Status, "message": f.Message, "errors": []map[string]string{{"domain": "global", "reason": reasons[f.Status], "message": f.Message}},
		}})
	} else {
		c.W.Header().Set("Content-Type", "application/xml; charset=UTF-8")
		text, _ = xml.Marshal(struct { // the same
			XMLName       xml.Name `xml:"Error"`
			Code, Message string
		}{Code: f.Code, Message: f.Message})
		text = append([]byte(xml.Header), text...)
	}
	c.W.WriteHeader(f.Status)
	if c.Method != http.MethodHead {
		_, _ = c.W.Write(text)
	}
}

func (s *Server) serve(request *fake.Call) error {
	c := &call{Call: request, s: s}
	if err := c.locate(); err != nil {
		return err
	}
	api := "XML "
	if c.json {
		api = "JSON "
	}
	c.Count(api)
	if err := c.known(); err != nil {
		return err
	}
	who, err := s.verify(c.Request)
	if err != nil {
		return err
	}
	if c.Name == "" {
		return c.listBuckets(who)
	}
	if err := c.Enter(); err != nil {
		return err
	}
	if !who && (!c.Bucket.Public || c.Method != http.MethodGet && c.Method != http.MethodHead || c.Query.Has("uploads")) {
		status := http.StatusForbidden
		if c.json {
			status = http.StatusUnauthorized
		}
		return fake.Fail(status, "AccessDenied", "Anonymous caller does not have access to the Google Cloud Storage bucket.")
	}
	return c.Inject(c.dispatch)
}

// locate finds the bucket and the key in the path.
func (c *call) locate() error {
	rest, ok := inJSON(c.Request)
	if c.json = ok; ok {
		parts := strings.Split(strings.TrimPrefix(rest, "/"), "/")
		switch {
		case rest == "":
			return nil
		case len(parts) == 2 && parts[1] == "o":
			if _, ok := inUpload(c.URL.Path); ok {
				c.Action = "insert"
				c.Key = url.PathEscape(c.Query.Get("name"))
			}
		case len(parts) >= 3 && len(parts) <= 4 && parts[1] == "o":
			c.Key = parts[2]
			c.Action = strings.Join(parts[3:], "")
		default:
			return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This path of the JSON API is not known here.")
		}
		c.Name = parts[0]
	} else {
		c.Name, c.Key, _ = strings.Cut(strings.TrimPrefix(c.URL.EscapedPath(), "/"), "/")
	}
	var err error
	if c.Key, err = url.PathUnescape(c.Key); err != nil || c.Name == "" {
		return fake.Fail(http.StatusBadRequest, "InvalidURI", "Couldn't parse the specified URI.")
	}
	c.Reads = c.Method == http.MethodGet && c.Key != "" && (!c.json || c.Query.Get("alt") == "media")
	return nil
}

// parameters are those that are known, of each API.
var parameters = map[bool][]string{
	true:  {"prefix", "maxResults", "fields", "pageToken", "startOffset", "delimiter", "matchGlob", "ifGenerationMatch", "project", "uploadType", "name", "alt"},
	false: {"uploads", "uploadId", "partNumber", "prefix", "max-uploads", "encoding-type", "key-marker", "upload-id-marker", "max-parts", "part-number-marker"},
}

// headers are those beginning with X-Goog- that are known.
var headers = []string{"X-Goog-Hash", "X-Goog-If-Generation-Match", "X-Goog-User-Project"}

// known refuses parameters and headers that would be ignored.
func (c *call) known() error {
	for name := range c.Query {
		if !slices.Contains(parameters[c.json], name) {
			return fake.Fail(http.StatusNotImplemented, "NotImplemented", "The parameter %q is not known here.", name)
		}
	}
	for name := range c.Header {
		if strings.HasPrefix(name, "X-Goog-") && !strings.HasPrefix(name, metaPrefix) && !slices.Contains(headers, name) {
			return fake.Fail(http.StatusNotImplemented, "NotImplemented", "The header %q is not known here.", name)
		}
	}
	conditional := c.Header.Get("X-Goog-If-Generation-Match") != "" || c.Query.Has("ifGenerationMatch")
	if conditional && (c.Query.Has("uploads") || c.Query.Has("uploadId")) {
		return fake.Fail(http.StatusBadRequest, "InvalidArgument", "Preconditions are not supported in multipart uploads.")
	}
	return nil
}

func (c *call) dispatch() error {
	if c.s.noXML && !c.json {
		return c.withoutXML()
	}
	if c.Key == "" {
		switch {
		case c.Method == http.MethodGet && c.json:
			return c.list()
		case c.Method == http.MethodGet && c.Query.Has("uploads"):
			return c.ListUploads()
		}
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This request to a bucket is not known here.")
	}
	if err := validKey(c.Key); err != nil {
		return err
	}
	if c.json {
		switch {
		case c.Method == http.MethodPost && c.Action == "insert":
			return c.insert()
		case c.Method == http.MethodPost && c.Action == "compose":
			return c.compose()
		case c.Action != "":
		case c.Reads:
			return c.get()
		case c.Method == http.MethodGet:
			return c.describe()
		case c.Method == http.MethodDelete:
			if !c.Delete() {
				return c.noObject()
			}
			return nil
		}
		return fake.Fail(http.StatusNotImplemented, "NotImplemented", "This request of the JSON API is not known here.")
	}
	return c.inXML()
}

// inXML serves the requests of the XML API for objects.
func (c *call) inXML() error {
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
	}
	return fake.Fail(http.StatusMethodNotAllowed, "MethodNotAllowed", "The specified method is not allowed against this resource.")
}

// send sends a document of the JSON API.
func (c *call) send(v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	c.W.Header().Set("Content-Type", "application/json; charset=UTF-8")
	_, _ = c.W.Write(text) // the client may have left
	return nil
}

func encodeSum(sum []byte) string { return base64.StdEncoding.EncodeToString(sum) }
