package az

import (
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// noContainer is the code of a missing container.
const noContainer = "ContainerNotFound"

// classify returns the kind of an error of the SDK or the network; Unknown for nil.
func classify(err error) backends.Kind {
	if kind, ok := objectstore.Known(err); ok {
		return kind
	}
	var (
		a  *azcore.ResponseError
		id *identityError
	)
	switch {
	case err == nil:
		return backends.Unknown
	case errors.As(err, &id):
		return id.kind()
	case errors.As(err, &a):
		return kindOf(a)
	}
	return objectstore.NoResponse(err)
}

// kinds are those of codes whose status says less.
var kinds = map[string]backends.Kind{
	"ServerBusy": backends.Throttled, "TooManyRequests": backends.Throttled, "AccountLimitExceeded": backends.Throttled,
	"BlobNotFound": backends.NotExist, noContainer: backends.NotExist, "ResourceNotFound": backends.NotExist, "ContainerDisabled": backends.NotExist,
	"BlobAlreadyExists": backends.Exist, "UnauthorizedBlobOverwrite": backends.Permission,
	"PublicAccessNotPermitted": backends.Permission, "LeaseIdMissing": backends.Permission, "LeaseNotPresentWithBlobOperation": backends.Permission,
	"BlobImmutableDueToPolicy": backends.Unsupported, "BlobArchived": backends.Unsupported, "BlobBeingRehydrated": backends.Unsupported,
	"InvalidBlobType": backends.Unsupported, "BlobUsesCustomerSpecifiedEncryption": backends.Unsupported, "SnapshotsPresent": backends.Unsupported,
	"Md5Mismatch": backends.Unknown, "Crc64Mismatch": backends.Unknown, // either sending again helps, or nothing does
	"ContainerBeingDeleted": backends.Unavailable, "OperationTimedOut": backends.Unavailable,
}

// kindOf maps the status of a failing server, then the code, then the status, to a kind.
func kindOf(a *azcore.ResponseError) backends.Kind {
	switch {
	case a.StatusCode == http.StatusServiceUnavailable, a.StatusCode == http.StatusTooManyRequests:
		return backends.Throttled
	case a.StatusCode == http.StatusNotImplemented:
		return backends.Unsupported
	case a.StatusCode == http.StatusProxyAuthRequired:
		return backends.Permission
	case a.StatusCode >= http.StatusInternalServerError:
		return backends.Unavailable
	case isPage(a):
		return backends.Unknown
	}
	if kind, ok := kinds[a.ErrorCode]; ok {
		return kind
	}
	switch a.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return backends.Permission
	case http.StatusNotFound:
		if a.ErrorCode == "" { // as for HEAD, which has no body
			return backends.NotExist
		}
		return backends.Invalid
	case http.StatusPreconditionFailed:
		return backends.Changed
	case http.StatusMethodNotAllowed, http.StatusRequestEntityTooLarge:
		return backends.Unsupported
	case http.StatusRequestTimeout, http.StatusConflict:
		return backends.Unavailable
	}
	return backends.Invalid
}

// isPage reports whether the body is a web page, so the server does not implement Azure Storage.
func isPage(a *azcore.ResponseError) bool {
	return a.RawResponse != nil && strings.HasPrefix(a.RawResponse.Header.Get("Content-Type"), "text/html")
}

// words replaces server messages that do not say what to do.
var words = map[string]string{
	"BlobNotFound":                        "no such object",
	"ConditionNotMet":                     "the object changed after it was listed",
	"BlobAlreadyExists":                   "the key already exists",
	"BlobArchived":                        "the blob is archived and must be rehydrated before it can be read",
	"BlobBeingRehydrated":                 "the blob is being rehydrated: wait until that has ended",
	"BlobImmutableDueToPolicy":            "the container's immutability policy protects the blob",
	"LeaseIdMissing":                      "another client holds a lease of the blob: break the lease, or write elsewhere",
	"PublicAccessNotPermitted":            "the account allows no anonymous access: remove ?anonymous=true and set credentials",
	"AuthorizationPermissionMismatch":     "the identity or token lacks a right: assign it Storage Blob Data Reader, or Contributor to write",
	"AuthorizationFailure":                "the account's network rules or the token's restrictions deny this request",
	"AuthorizationProtocolMismatch":       "the token is for HTTPS only: write https:// before the endpoint",
	"AuthorizationSourceIPMismatch":       "the token is not valid for the address of this machine",
	"AccountIsDisabled":                   "the storage account is disabled",
	"InvalidBlobOrBlock":                  "another program has begun to write this key in blocks, and Azure does not mix them: write to another key, or wait a week",
	"InvalidBlobType":                     "the blob is a page or append blob, which stager reads but does not replace: delete it first",
	"BlobUsesCustomerSpecifiedEncryption": "the blob is encrypted with a key that the client must send, which stager does not support",
	"Crc64Mismatch":                       "the received bytes differ from the sent bytes",
	"Md5Mismatch":                         "the received bytes differ from the sent bytes",
}

// explain converts an error of the SDK to a *backends.Error with a readable message. nil stays nil.
func (s *store) explain(op, key string, err error) error {
	var (
		local *backends.LocalError
		known *backends.Error
		a     *azcore.ResponseError
	)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &local):
		return local
	case errors.As(err, &known):
		out := *known
		out.Op, out.Key = op, key
		return &out
	}
	out := &backends.Error{Op: op, Key: key, Kind: classify(err), Err: s.sentence(err)}
	if errors.As(err, &a) {
		s.heard.Store(true)
		s.log.Debug("the store rejected the request", "op", op, "key", key, "status", a.StatusCode, "code", a.ErrorCode, "request_id", header(a, "x-ms-request-id"))
		if seconds, err := strconv.Atoi(header(a, "Retry-After")); err == nil && seconds > 0 {
			out.RetryAfter = time.Duration(seconds) * time.Second
		}
		if out.Kind == backends.Permission {
			out.Again = s.access.rejected()
		}
	} else if s.noAccount(err) {
		out.Kind = backends.Invalid
	}
	return out
}

// noAccount reports whether the error says that the account does not exist: it has no address, and
// nothing came from there before.
func (s *store) noAccount(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsNotFound && s.access.place.known && !s.heard.Load()
}

func (s *store) sentence(err error) error {
	if words := objectstore.Connection(err); words != nil {
		return words
	}
	var (
		a  *azcore.ResponseError
		id *identityError
	)
	switch {
	case errors.As(err, &id):
		return id
	case s.noAccount(err):
		return fmt.Errorf("there is no storage account %q: its address is unknown (%w)", s.account, objectstore.Innermost(err))
	case !errors.As(err, &a):
		return objectstore.Innermost(err)
	case a.StatusCode == http.StatusProxyAuthRequired:
		return objectstore.ErrProxyCredentials
	case isPage(a):
		return fmt.Errorf("the endpoint returned a web page with HTTP %d: is it a blob service?", a.StatusCode)
	case a.ErrorCode == noContainer:
		return fmt.Errorf("container %q does not exist in account %q", s.name, s.account)
	case a.StatusCode == http.StatusUnauthorized, a.StatusCode == http.StatusForbidden && words[a.ErrorCode] == "",
		a.ErrorCode == "AuthorizationFailure" && !s.access.place.azure: // emulators use this code for everything
		return s.denied(a)
	case words[a.ErrorCode] != "":
		return fmt.Errorf("%s (%s)", words[a.ErrorCode], a.ErrorCode)
	case a.ErrorCode != "":
		return fmt.Errorf("%s (%s)", objectstore.Shorten(message(a)), a.ErrorCode)
	case a.StatusCode == http.StatusNotFound:
		return errors.New(words["BlobNotFound"])
	}
	return fmt.Errorf("the server returned HTTP %d %s", a.StatusCode, http.StatusText(a.StatusCode))
}

// maxSkew is how far Azure lets clocks differ.
const maxSkew = 15 * time.Minute

// denied returns the reason for which a server denies access. Azure reports most of them as the same
// code.
func (s *store) denied(a *azcore.ResponseError) error {
	code := a.ErrorCode
	if code == "" {
		code = "HTTP " + strconv.Itoa(a.StatusCode)
	}
	now := time.Now()
	if date, err := http.ParseTime(header(a, "Date")); err == nil {
		if now.Sub(date).Abs() > maxSkew {
			return fmt.Errorf("%w, 15 minutes (%s)", backends.ErrClock, code)
		}
		now = date
	}
	switch s.access.how() {
	case "key":
		return fmt.Errorf("the account key does not belong to account %q, or a proxy changed the request (%s)", s.account, code)
	case "sas":
		if end := s.access.expiry(); !end.IsZero() && now.After(end) {
			return fmt.Errorf("the SAS token expired at %s: set a new one (%s)", end.UTC().Format(time.DateTime), code)
		}
		return fmt.Errorf("the SAS token is not valid for this request: it may belong to another account or container, or lack a permission (%s)", code)
	case "anonymous":
		return fmt.Errorf("the container is not public: remove ?anonymous=true and set credentials (%s)", code)
	}
	if words[code] != "" {
		return fmt.Errorf("%s (%s)", words[code], code)
	}
	return fmt.Errorf("the account does not accept the identity: assign it Storage Blob Data Reader, or Contributor to write (%s)", code)
}

// message returns the message in the body of an error response.
func message(a *azcore.ResponseError) string {
	var out struct{ Message string }
	if a.RawResponse != nil {
		if text, err := runtime.Payload(a.RawResponse); err == nil && xml.Unmarshal(text, &out) == nil && out.Message != "" {
			first, _, _ := strings.Cut(out.Message, "\n") // the rest are request IDs
			return first
		}
	}
	return "HTTP " + strconv.Itoa(a.StatusCode)
}

func header(a *azcore.ResponseError, name string) string {
	if a.RawResponse == nil {
		return ""
	}
	return a.RawResponse.Header.Get(name)
}

// codeOf returns the code of an error response, or "".
func codeOf(err error) string {
	var a *azcore.ResponseError
	if errors.As(err, &a) {
		return a.ErrorCode
	}
	return ""
}

// statusOf returns the status of an error response, or 0.
func statusOf(err error) int {
	var a *azcore.ResponseError
	if errors.As(err, &a) {
		return a.StatusCode
	}
	return 0
}
