package gs

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// A serverError is an error response of either API.
type serverError struct {
	status     int
	code       string // of XML, or the reason of JSON; "" if there was none
	message    string
	form       string // formJSON or formXML; "": neither
	page       bool   // the body is neither, so a proxy sent it
	token      string
	retryAfter time.Duration
}

// How the APIs write their errors.
const (
	formJSON = "JSON"
	formXML  = "XML"
)

func (a *serverError) Error() string {
	if a.code == "" {
		return fmt.Sprintf("HTTP %d", a.status)
	}
	return a.code + ": " + a.message
}

// errorLimit is how many bytes of an error body are read.
const errorLimit = 64 << 10

// readServerError parses an error response and closes its body. token is what the request carried.
func readServerError(res *http.Response, token string) *serverError {
	defer res.Body.Close()
	a := &serverError{status: res.StatusCode, token: token, retryAfter: objectstore.RetryAfter(res.Header, time.Now())}
	text, err := io.ReadAll(io.LimitReader(res.Body, errorLimit))
	if err == nil && !a.parse(text) {
		a.page = strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
		if objectstore.ExpectsTLS(text) {
			a.code, a.message = expectsTLS, string(text)
		} else if !a.page {
			a.message = string(text)
		}
	}
	return a
}

// expectsTLS is the code of a response of a server that expects HTTPS.
const expectsTLS = "expects TLS"

// parse reads the code and the message of an error body, and reports whether it is one.
func (a *serverError) parse(text []byte) bool {
	var inJSON struct {
		Error *struct {
			Message string
			Errors  []struct{ Reason string }
		}
	}
	if json.Unmarshal(text, &inJSON) == nil && inJSON.Error != nil {
		a.form, a.message = formJSON, inJSON.Error.Message
		if len(inJSON.Error.Errors) > 0 {
			a.code = inJSON.Error.Errors[0].Reason
		}
		return true
	}
	var inXML struct {
		XMLName                xml.Name
		Code, Message, Details string
	}
	if xml.Unmarshal(text, &inXML) != nil || inXML.XMLName.Local != "Error" {
		return false
	}
	a.form, a.code, a.message = formXML, inXML.Code, inXML.Message
	if inXML.Details != "" && a.status == http.StatusForbidden { // it names the account and the permission
		a.message = inXML.Details
	}
	return true
}

// noBucket reports whether the bucket is missing.
func (a *serverError) noBucket() bool {
	return a.status == http.StatusNotFound && (a.code == "NoSuchBucket" || strings.Contains(a.message, "bucket does not exist"))
}

// noUpload reports whether a multipart upload has ended or never existed.
func (a *serverError) noUpload() bool { return a.code == "NoSuchUpload" }

// garbled reports whether the bytes that arrived do not have the stated checksum.
func (a *serverError) garbled() bool {
	return a.code == "BadDigest" || a.code == "InvalidDigest" || strings.Contains(a.message, "doesn't match calculated")
}

// classify returns the kind of an error.
func classify(err error) backends.Kind {
	if kind, ok := objectstore.Known(err); ok {
		return kind
	}
	if a := (*serverError)(nil); errors.As(err, &a) {
		return a.kind()
	}
	return objectstore.NoResponse(err)
}

// kind maps the status, then the code, to a kind. A failing server (5xx) or a web page is never
// trusted about the absence of an object.
func (a *serverError) kind() backends.Kind {
	switch a.status {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		return backends.Throttled
	case http.StatusNotImplemented, http.StatusMethodNotAllowed:
		return backends.Unsupported
	case http.StatusProxyAuthRequired:
		return backends.Permission
	}
	switch {
	case a.status >= 500:
		return backends.Unavailable
	case a.code == expectsTLS:
		return backends.Invalid
	case a.page:
		return backends.Unknown
	case a.garbled():
		return backends.Unknown // corrupted in transit; either sending again helps, or nothing does
	}
	switch a.code {
	case "IncompleteBody", "RequestTimeout":
		return backends.Unavailable
	case "rateLimitExceeded", "userRateLimitExceeded":
		return backends.Throttled
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return backends.Permission
	case http.StatusNotFound:
		if a.noUpload() {
			return backends.Invalid
		}
		return backends.NotExist
	case http.StatusPreconditionFailed:
		return backends.Changed
	case http.StatusRequestTimeout, http.StatusConflict:
		return backends.Unavailable
	}
	return backends.Invalid
}

// explain converts an error to a *backends.Error with a readable message.
func (b *bucket) explain(op, key string, err error) error {
	var (
		local *backends.LocalError
		known *backends.Error
		a     *serverError
	)
	if errors.As(err, &local) {
		return local
	}
	if errors.As(err, &known) {
		out := *known
		out.Op, out.Key = op, key
		return &out
	}
	out := &backends.Error{Op: op, Key: key, Kind: classify(err), Err: b.sentence(err)}
	if errors.As(err, &a) {
		b.log.Debug("the store rejected the request", "op", op, "key", key, "status", a.status, "code", a.code)
		out.RetryAfter = a.retryAfter
		out.Again = a.status == http.StatusUnauthorized && b.credentials.forget(a.token)
	}
	return out
}

func (b *bucket) sentence(err error) error {
	if words := objectstore.Connection(err); words != nil {
		return words
	}
	var a *serverError
	switch {
	case !errors.As(err, &a):
		return objectstore.Innermost(err)
	case a.code == expectsTLS:
		return objectstore.ErrExpectsTLS
	case a.status == http.StatusProxyAuthRequired:
		return objectstore.ErrProxyCredentials
	case a.page:
		return fmt.Errorf("the endpoint returned a web page with HTTP %d: is it Google Cloud Storage?", a.status)
	case a.noBucket():
		return fmt.Errorf("bucket %q does not exist", b.name)
	case a.noUpload():
		return errors.New("another client ended this upload (NoSuchUpload)")
	case a.status == http.StatusNotFound:
		return errors.New("no such object")
	case a.kind() == backends.Permission && a.token == "":
		return errors.New("access without credentials is denied")
	case a.status == http.StatusUnauthorized:
		return errors.New("the access token has expired or was revoked")
	case a.status == http.StatusPreconditionFailed:
		return errors.New("the object changed after it was listed")
	case a.garbled():
		return fmt.Errorf("the received bytes differ from the sent bytes (%s)", a.code)
	case a.code != "":
		return fmt.Errorf("%s (%s)", objectstore.Shorten(a.message), a.code)
	case a.status == http.StatusForbidden:
		return errors.New("access denied (HTTP 403)")
	}
	return fmt.Errorf("the server returned HTTP %d %s", a.status, http.StatusText(a.status))
}

// refusal returns the error response in err's chain, or an empty one.
func refusal(err error) *serverError {
	a := new(serverError)
	errors.As(err, &a)
	return a
}
