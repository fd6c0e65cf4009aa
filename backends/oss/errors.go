package oss

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// classify returns the kind of an error of the SDK or the network.
func classify(err error) backends.Kind {
	if kind, ok := objectstore.Known(err); ok {
		return kind
	}
	if a := (*serverError)(nil); errors.As(err, &a) {
		return a.kind()
	}
	return objectstore.NoResponse(err)
}

// kind maps the code, then the status, to a kind. A failing server (5xx) or a web page is never
// trusted about the absence of an object.
func (a *serverError) kind() backends.Kind {
	switch a.code {
	case "SlowDown", "TooManyRequests", "RequestLimitExceeded", "QpsLimitExceeded", "DownloadTrafficRateLimitExceeded",
		"UploadTrafficRateLimitExceeded", "MetaOperationQpsLimitExceeded", "TotalQpsLimitExceeded":
		return backends.Throttled
	case "NotImplemented":
		return backends.Unsupported
	}
	switch {
	case a.status == http.StatusProxyAuthRequired:
		return backends.Permission
	case a.status == http.StatusServiceUnavailable, a.status == http.StatusTooManyRequests:
		return backends.Throttled
	case a.status == http.StatusNotImplemented:
		return backends.Unsupported
	case a.status >= 500:
		return backends.Unavailable
	case a.page:
		return backends.Unknown
	case a.endpoint != "": // the bucket is elsewhere
		return backends.Invalid
	}
	switch a.code {
	case "NoSuchKey", "NoSuchBucket", "SymlinkTargetNotExist":
		return backends.NotExist
	case "AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch", "SecurityTokenExpired", "InvalidSecurityToken",
		"RequestTimeTooSkewed", "UserDisable", "InvalidAccessKeyStatus", "AccountError":
		return backends.Permission
	case "FileAlreadyExists", "ObjectAlreadyExists":
		return backends.Exist
	case "PreconditionFailed":
		return backends.Changed
	case "RequestTimeout", "InternalError", "ServiceBusy", "OperationConflict", "IncompleteBody":
		return backends.Unavailable
	case "InvalidDigest":
		return backends.Unknown // corrupted in transit; either sending again helps, or nothing does
	case "InvalidObjectState", "EntityTooLarge", "FileImmutable", "ObjectNotAppendable":
		return backends.Unsupported
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return backends.Permission
	case http.StatusNotFound:
		if a.code == "" { // as for HEAD, which has no body
			return backends.NotExist
		}
		return backends.Invalid // something else is missing, such as an upload
	case http.StatusPreconditionFailed:
		return backends.Changed
	case http.StatusMethodNotAllowed:
		return backends.Unsupported
	case http.StatusRequestTimeout, http.StatusConflict:
		return backends.Unavailable
	}
	return backends.Invalid
}

// words replaces server messages that do not say what to do.
var words = map[string]string{
	"NoSuchKey":             "no such object",
	"InvalidAccessKeyId":    "the store does not know this access key, or it is disabled",
	"SignatureDoesNotMatch": "the secret key does not match the access key, or a proxy changed the request",
	"SecurityTokenExpired":  "the session token has expired",
	"InvalidSecurityToken":  "the session token does not belong to this access key",
	"InvalidObjectState":    "the object is archived and must be restored before it can be read",
	"PreconditionFailed":    "the object changed after it was listed",
	"FileAlreadyExists":     "the key already exists",
	"FileImmutable":         "the bucket's retention policy protects the object",
	"NoSuchUpload":          "another client ended this upload",
	"InvalidObjectName":     "OSS does not allow keys that start with \"/\" or \"\\\", or exceed 1,023 bytes",
	"InvalidDigest":         "the received bytes differ from the sent bytes",
}

// explain converts an error of the SDK to a *backends.Error with a readable message.
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
		b.log.Debug("the store rejected the request", "op", op, "key", key, "status", a.status, "code", a.code, "request_id", a.request)
		out.RetryAfter = a.retryAfter
		switch {
		case a.code == "SecurityTokenExpired" && b.credentials.forget():
			out.Kind = backends.Unavailable // the source of the token will have another
		case out.Kind == backends.Permission:
			out.Again = b.credentials.rejected()
		}
	}
	return out
}

func (b *bucket) sentence(err error) error {
	if words := objectstore.Connection(err); words != nil {
		return words
	}
	var (
		a    *serverError
		dial *net.OpError
	)
	switch {
	case b.unset && errors.As(err, &dial) && dial.Op == "dial":
		return fmt.Errorf("no endpoint is set (?endpoint= or OSS_ENDPOINT, in the environment or the Secret), and the public one of the region cannot be reached: %w", dial)
	case !errors.As(err, &a):
		return objectstore.Innermost(err)
	case a.status == http.StatusProxyAuthRequired:
		return objectstore.ErrProxyCredentials
	case a.page:
		return fmt.Errorf("the endpoint returned a web page with HTTP %d: is it an OSS server?", a.status)
	case a.code == "NoSuchBucket":
		return fmt.Errorf("bucket %q does not exist", b.name)
	case a.endpoint != "":
		return fmt.Errorf("the bucket is in another region: set ?endpoint=%s (%s)", objectstore.Shorten(a.endpoint), a.code)
	case strings.Contains(a.message, "signing region"):
		return fmt.Errorf("the region does not match the endpoint: correct ?region=, or use ?signature=v1 (%s)", a.code)
	case a.code == "RequestTimeTooSkewed":
		return fmt.Errorf("%w, 15 minutes (%s)", backends.ErrClock, a.code)
	case words[a.code] != "":
		return fmt.Errorf("%s (%s)", words[a.code], a.code)
	case a.code != "":
		return fmt.Errorf("%s (%s)", objectstore.Shorten(a.message), a.code)
	case a.status == http.StatusNotFound:
		return errors.New(words["NoSuchKey"])
	case a.status == http.StatusForbidden:
		return errors.New("access denied (HTTP 403)")
	}
	return fmt.Errorf("the server returned HTTP %d %s", a.status, http.StatusText(a.status))
}

// codeOf returns the code of an error response, or "".
func codeOf(err error) string {
	var a *serverError
	if errors.As(err, &a) {
		return a.code
	}
	return ""
}

// statusOf returns the status of an error response, or 0.
func statusOf(err error) int {
	var a *serverError
	if errors.As(err, &a) {
		return a.status
	}
	return 0
}
