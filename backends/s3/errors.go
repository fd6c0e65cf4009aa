package s3

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// A serverError is an error response, extracted from the layers of the SDK.
type serverError struct {
	status     int // 0: no response
	operation  string
	code       string
	message    string
	request    string // the store's request ID
	page       bool   // the body is a web page, so the server does not implement S3
	retryAfter time.Duration
}

func serverErrorOf(err error) (a serverError) {
	var res *awshttp.ResponseError
	if errors.As(err, &res) && res.Response != nil && res.Response.Response != nil {
		a.status = res.HTTPStatusCode()
		a.request = res.RequestID
		a.page = isPage(res.Response.Response)
		if s, err := strconv.Atoi(res.Response.Header.Get("Retry-After")); err == nil && s > 0 {
			a.retryAfter = time.Duration(s) * time.Second
		}
	}
	var op *smithy.OperationError
	if errors.As(err, &op) {
		a.operation = op.Operation()
	}
	var api smithy.APIError
	if errors.As(err, &api) {
		a.code, a.message = api.ErrorCode(), api.ErrorMessage()
	}
	if a.code != "" && !bare(a) {
		a.page = false // the body is an S3 error, which moto sends as text/html
	}
	return a
}

// isPage reports whether a response header is that of a web page. The response to HEAD has no body,
// so its type is meaningless. Only S3 servers send X-Amz-Request-Id.
func isPage(res *http.Response) bool {
	if res.Request != nil && res.Request.Method == http.MethodHead || res.Header.Get("X-Amz-Request-Id") != "" {
		return false
	}
	return strings.HasPrefix(res.Header.Get("Content-Type"), "text/html")
}

// classify returns the kind of an error of the SDK or the network.
func classify(err error) backends.Kind {
	if kind, ok := objectstore.Known(err); ok {
		return kind
	}
	a := serverErrorOf(err)
	if a.status != 0 {
		var garbled *smithy.DeserializationError
		switch {
		case connection(err) != nil:
			return backends.Invalid
		case a.status == http.StatusProxyAuthRequired:
			return backends.Permission
		case a.status < 300 && cut(err):
			return backends.Unavailable // the response was truncated
		case (a.page || errors.As(err, &garbled)) && a.status < 500:
			return backends.Unknown // such a server cannot know what exists
		}
		return a.kind()
	}
	if a.code != "" { // the body of a 200 may contain an error
		a.status = http.StatusBadRequest
		return a.kind()
	}
	if missing := (*credentialsError)(nil); errors.As(err, &missing) {
		return missing.kind()
	}
	return objectstore.NoResponse(err)
}

// connection returns a message about a wrong endpoint URL, or nil.
func connection(err error) error {
	var garbled *smithy.DeserializationError
	if errors.As(err, &garbled) && objectstore.ExpectsTLS(garbled.Snapshot) {
		return objectstore.ErrExpectsTLS
	}
	return objectstore.Connection(err)
}

// cut reports whether a response body was truncated.
func cut(err error) bool {
	var syntax *xml.SyntaxError
	return errors.Is(err, io.ErrUnexpectedEOF) || errors.As(err, &syntax) && syntax.Msg == "unexpected EOF"
}

// kind maps the code, then the status, to a kind. A failing server (5xx) is never trusted about the
// absence of an object.
func (a serverError) kind() backends.Kind {
	switch a.code {
	case "QuotaExceeded", "InsufficientStorage", "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded":
		return backends.NoSpace
	case "SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "TooManyRequests", "BandwidthLimitExceeded":
		return backends.Throttled
	case "NotImplemented":
		return backends.Unsupported
	}
	switch {
	case a.status == http.StatusServiceUnavailable:
		return backends.Throttled
	case a.status == http.StatusInsufficientStorage:
		return backends.NoSpace
	case a.status == http.StatusNotImplemented:
		return backends.Unsupported
	case a.status >= 500:
		return backends.Unavailable
	}
	if a.brokenBytes() {
		return backends.Unknown // either sending again helps, or nothing does
	}
	switch a.code {
	case "NoSuchKey", "NoSuchBucket":
		return backends.NotExist
	case "AccessDenied", "AllAccessDisabled", "AccountProblem", "InvalidAccessKeyId", "SignatureDoesNotMatch",
		"ExpiredToken", "InvalidToken", "TokenRefreshRequired", "RequestTimeTooSkewed", "NotSignedUp", "XAdminUserNotFound":
		return backends.Permission
	case "PreconditionFailed":
		return backends.Changed
	case "RequestTimeout", "InternalError", "OperationAborted", "ConditionalRequestConflict", "IncompleteBody":
		return backends.Unavailable
	case "InvalidObjectState", "EntityTooLarge":
		return backends.Unsupported
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return backends.Permission
	case http.StatusNotFound:
		if a.code == "" || a.code == "NotFound" { // as for HEAD, which has no body
			return backends.NotExist
		}
		return backends.Invalid // something else is missing, such as an upload
	case http.StatusPreconditionFailed:
		return backends.Changed
	case http.StatusMethodNotAllowed:
		return backends.Unsupported
	case http.StatusTooManyRequests:
		return backends.Throttled
	case http.StatusRequestTimeout, http.StatusConflict:
		return backends.Unavailable
	}
	if a.status >= 300 {
		return backends.Invalid
	}
	return backends.Unknown
}

// brokenBytes reports whether the received bytes did not match their checksum.
func (a serverError) brokenBytes() bool {
	switch a.code {
	case "BadDigest", "XAmzContentSHA256Mismatch", "XAmzContentChecksumMismatch":
		return true
	}
	return false
}

// expired reports whether the store rejected expired credentials.
func (a serverError) expired() bool {
	return a.code == "ExpiredToken" || a.code == "TokenRefreshRequired"
}

// words replaces server messages that do not say what to do.
var words = map[string]string{
	"NoSuchKey":                    "no such object",
	"InvalidAccessKeyId":           "the store does not know this access key",
	"XAdminUserNotFound":           "the store does not know this access key",
	"SignatureDoesNotMatch":        "the secret key does not match the access key, or a proxy changed the request",
	"ExpiredToken":                 "the session token has expired",
	"RequestTimeTooSkewed":         backends.ErrClock.Error(),
	"TokenRefreshRequired":         "the session token has expired",
	"InvalidObjectState":           "the object is archived and must be restored before it can be read",
	"PermanentRedirect":            "the bucket is in another region: set ?region=",
	"AuthorizationHeaderMalformed": "the bucket is in another region: set ?region=",
	"PreconditionFailed":           "the object changed after it was listed",
	"NoSuchUpload":                 "another client ended this upload",
}

// explain converts an error of the SDK to a *backends.Error with a readable message.
func (b *bucket) explain(op, key string, err error) error {
	var (
		local *backends.LocalError
		known *backends.Error
	)
	if errors.As(err, &local) {
		return local
	}
	if errors.As(err, &known) {
		return known
	}
	a := serverErrorOf(err)
	if a.status != 0 {
		b.log.Debug("the store rejected the request", "op", op, "key", key, "status", a.status, "code", a.code, "request_id", a.request)
	}
	out := &backends.Error{Op: op, Key: key, Kind: classify(err), RetryAfter: a.retryAfter, Err: b.sentence(a, err)}
	switch {
	case a.expired():
		out.Again = b.renew != nil && b.renew()
	case out.Kind == backends.Permission && a.status != 0:
		out.Again = b.rejected != nil && b.rejected()
	}
	return out
}

func (b *bucket) sentence(a serverError, err error) error {
	var missing *credentialsError
	if errors.As(err, &missing) {
		return missing
	}
	if words := connection(err); words != nil {
		return b.withoutEndpoint(words)
	}
	switch {
	case a.status == http.StatusProxyAuthRequired:
		return objectstore.ErrProxyCredentials
	case a.page:
		return fmt.Errorf("the endpoint returned a web page with HTTP %d: is it an S3 server?", a.status)
	case a.code == "RequestTimeTooSkewed":
		return fmt.Errorf("%w (%s)", backends.ErrClock, a.code)
	case a.code == "NoSuchBucket":
		return fmt.Errorf("bucket %q does not exist", b.name)
	case words[a.code] != "":
		return fmt.Errorf("%s (%s)", words[a.code], a.code)
	case a.status == http.StatusNotFound && bare(a):
		return errors.New(words["NoSuchKey"])
	case a.status == http.StatusForbidden && bare(a):
		return errors.New("access denied (HTTP 403)")
	case a.status == http.StatusBadRequest && bare(a) && a.operation == headObject:
		return b.extras.customer.suspect()
	case a.status != 0 && bare(a):
		return fmt.Errorf("the server returned HTTP %d %s", a.status, http.StatusText(a.status))
	case a.code != "":
		return fmt.Errorf("%s (%s)", objectstore.Shorten(a.message), a.code)
	}
	return b.withoutEndpoint(objectstore.Innermost(err))
}

// headObject is the SDK's name of the operation whose error response has no body.
const headObject = "HeadObject"

// withoutEndpoint adds to a connection error that AWS is contacted only because no endpoint is set.
// Most users who see this have another store.
func (b *bucket) withoutEndpoint(err error) error {
	if !b.unset {
		return err
	}
	return fmt.Errorf("no endpoint is set (?endpoint= or AWS_ENDPOINT_URL_S3, in the environment or the Secret), and AWS cannot be reached: %w", err)
}

// bare reports whether the SDK derived the code from the status because there was no body.
func bare(a serverError) bool {
	return a.message == "" || a.message == http.StatusText(a.status)
}

// A credentialsError means that the chain of credential sources failed.
type credentialsError struct{ err error }

func (e *credentialsError) Error() string {
	if e.kind() == backends.Unavailable {
		return fmt.Sprintf("cannot fetch credentials: %v", objectstore.Innermost(e.err))
	}
	return "no credentials were found"
}

func (e *credentialsError) Unwrap() error { return e.err }

// kind returns Unavailable for a token service that is down. A machine without a role is a
// Permission error, because waiting does not help.
func (e *credentialsError) kind() backends.Kind {
	var op *smithy.OperationError
	if errors.As(e.err, &op) && op.Service() != "ec2imds" {
		return classify(op.Err)
	}
	return backends.Permission
}
