package s3

import (
	"bytes"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/auth"
	"github.com/aws/smithy-go/encoding/httpbinding"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// reader requests objects and listing pages, and uploads objects and parts, which is nearly all of
// the traffic. The SDK spends more on a small object than everything else together, mostly on
// rediscovering for each request what is known since the bucket was opened. So the SDK is used here
// only once, to find the endpoint of the bucket, the signing parameters and the credentials.
//
// Error responses become errors of the SDK's types, so they are handled the same way.
type reader struct {
	signer
	client *objectstore.Client
	send   func(*http.Request, *backends.Part) (*http.Response, error) // the client's Send; tests override it to lose responses
	base   url.URL                                                     // of the bucket; its path has no trailing "/"
	blank  call                                                        // common to all requests: path, host, payer

	customer customerKey // for all requests about the content of objects
}

// newReader resolves the endpoint of the bucket of a client.
func newReader(ctx context.Context, name string, opts s3.Options, transport *http.Transport, payer string) (*reader, error) {
	at, err := s3.NewDefaultEndpointResolverV2().ResolveEndpoint(ctx, s3.EndpointParameters{
		Bucket: &name, Region: &opts.Region, Endpoint: opts.BaseEndpoint, ForcePathStyle: &opts.UsePathStyle,
	}.WithDefaults())
	if err != nil {
		return nil, backends.Errorf(backends.Invalid, "open", "", "%w", err)
	}
	httpClient, err := objectstore.NewClient(&at.URI, transport)
	if err != nil {
		return nil, err
	}
	r := &reader{
		signer: signer{token: tokenField, service: "s3", region: opts.Region},
		client: httpClient, send: httpClient.Send,
		base: at.URI,
	}
	r.blank.path, r.blank.plain = strings.TrimSuffix(r.base.EscapedPath(), "/"), strings.TrimSuffix(r.base.Path, "/")
	r.blank.values[payerField] = payer
	host := r.base.Host
	if port := r.base.Port(); port == "443" && r.base.Scheme == "https" || port == "80" && r.base.Scheme == "http" {
		host = strings.TrimSuffix(host, ":"+port) // servers omit it when they verify the signature
	}
	r.blank.values[hostField] = host
	if _, anonymous := opts.Credentials.(aws.AnonymousCredentials); anonymous {
		return r, nil
	}
	r.creds = opts.Credentials
	schemes, _ := auth.GetAuthOptions(&at.Properties)
	for _, scheme := range schemes {
		switch scheme.SchemeID {
		case "sigv4":
		case "sigv4-s3express":
			r.token = sessionField
			r.creds = aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
				return opts.ExpressCredentials.Retrieve(ctx, name)
			})
		default:
			continue
		}
		if service, ok := smithyhttp.GetSigV4SigningName(&scheme.SignerProperties); ok {
			r.service = service
		}
		if region, ok := smithyhttp.GetSigV4SigningRegion(&scheme.SignerProperties); ok {
			r.region = region
		}
		return r, nil
	}
	return nil, backends.Errorf(backends.Unsupported, "open", "", "bucket %q requires an unsupported kind of signature", name)
}

// object returns the call for the bytes of an object.
func (r *reader) object(key string) *call {
	q := new(r.blank)
	q.key, q.plain, q.path = key, q.plain+"/"+key, q.path+"/"+escape(key, false)
	r.customer.use(q)
	return q
}

// part returns the call for a part of an upload.
func (r *reader) part(key, upload string, number int) *call {
	q := r.object(key)
	q.upload, q.number = upload, number
	q.query = "partNumber=" + strconv.Itoa(number) + "&uploadId=" + escape(upload, true)
	return q
}

// selection is what a listing lists.
type selection struct {
	prefix, delimiter string
	after             string // it begins behind this key; "": with the first one
}

// pageOf returns the call for a page of a listing.
func (r *reader) pageOf(sel selection, token string) *call {
	q := new(r.blank)
	if q.path == "" {
		q.plain, q.path = "/", "/"
	}
	if token != "" {
		q.query = "continuation-token=" + escape(token, true) + "&"
	}
	if sel.delimiter != "" {
		q.query += "delimiter=" + escape(sel.delimiter, true) + "&"
	}
	q.query += "encoding-type=url&list-type=2&prefix=" + escape(sel.prefix, true)
	if sel.after != "" {
		q.query += "&start-after=" + escape(sel.after, true)
	}
	return q
}

// escape percent-encodes s by the rules of AWS. It keeps "/" unless slash is set.
func escape(s string, slash bool) string {
	for i := range len(s) {
		c := s[i]
		if 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' || c == '/' && !slash {
			continue
		}
		return httpbinding.EscapePath(s, slash)
	}
	return s
}

// put uploads an object or a part and returns the response header.
func (r *reader) put(ctx context.Context, q *call) (http.Header, error) {
	q.method = http.MethodPut
	res, err := r.get(ctx, q)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.ContentLength == 0 {
		return res.Header, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, refusalLimit))
	if err == nil && holdsError(body) {
		// As the SDK does for requests whose 200 may contain an error.
		res.StatusCode, res.Body = http.StatusInternalServerError, io.NopCloser(bytes.NewReader(body))
		return nil, refusal(res)
	}
	return res.Header, err
}

// holdsError reports whether a response body is an S3 error.
func holdsError(body []byte) bool {
	var root struct{ XMLName xml.Name }
	return bytes.Contains(body, []byte("<Error")) && xml.Unmarshal(body, &root) == nil && root.XMLName.Local == "Error"
}

// get sends a call and returns the successful response.
func (r *reader) get(ctx context.Context, q *call) (*http.Response, error) {
	for again := true; ; again = false {
		res, err := r.once(ctx, q)
		if err != nil {
			return nil, err
		}
		if res.StatusCode == http.StatusOK || res.StatusCode == http.StatusPartialContent {
			return res, nil
		}
		err = refusal(res)
		if !again || serverErrorOf(err).code != "RequestTimeTooSkewed" || !r.learnClock(res.Header.Get("Date"), time.Now()) {
			return nil, err
		}
		q = new(*q) // the headers share memory with the old call, which may still be in use
	}
}

func (r *reader) once(ctx context.Context, q *call) (*http.Response, error) {
	req, err := r.request(ctx, q, time.Now())
	if err != nil {
		return nil, err
	}
	return r.send(req, q.body)
}

// request returns the signed HTTP request of a call.
func (r *reader) request(ctx context.Context, q *call, now time.Time) (*http.Request, error) {
	h, err := r.header(ctx, q, now)
	if err != nil {
		return nil, err
	}
	u := r.base
	u.Path, u.RawPath, u.RawQuery = q.plain, q.path, q.query
	return (&http.Request{
		Method: q.verb(), URL: &u, Host: q.values[hostField], Header: h, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx), nil
}

// refusalLimit is how many bytes of an error body are read.
const refusalLimit = 64 << 10

// refusal converts an error response to the error that the SDK would return.
func refusal(res *http.Response) error {
	defer res.Body.Close()
	var said struct {
		XMLName       xml.Name
		Code, Message string
		RequestID     string `xml:"RequestId"`
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, refusalLimit))
	if err == nil && len(body) > 0 {
		if err = xml.Unmarshal(body, &said); err == nil && said.XMLName.Local != "Error" {
			err = fmt.Errorf("the response is <%s>", said.XMLName.Local)
		}
	}
	switch {
	case err == nil:
		err = &smithy.GenericAPIError{Code: said.Code, Message: said.Message}
	case res.StatusCode >= 500 || len(body) == 0:
		err = &smithy.GenericAPIError{} // the status suffices
	default:
		err = &smithy.DeserializationError{Err: err, Snapshot: body}
	}
	request := res.Header.Get("X-Amz-Request-Id")
	if request == "" {
		request = said.RequestID
	}
	return responseError(res, request, err)
}

// responseError returns an error about a response.
func responseError(res *http.Response, request string, err error) error {
	return &awshttp.ResponseError{
		ResponseError: &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: res}, Err: err}, RequestID: request,
	}
}

// pageLimit is the maximum size of a listing page: a thousand keys of a thousand characters, each
// up to nine bytes when escaped, with room for the rest.
const pageLimit = 32 << 20

// pageBuffers hold pages while they arrive. Up to 16 do at once, in listings that end after a few pages.
var pageBuffers = sync.Pool{New: func() any { return new([]byte) }}

// list requests one page.
func (r *reader) list(ctx context.Context, sel selection, token string) (page, error) {
	res, err := r.get(ctx, r.pageOf(sel, token))
	if err != nil {
		return page{}, err
	}
	defer res.Body.Close()
	buf := pageBuffers.Get().(*[]byte)
	defer pageBuffers.Put(buf)
	if *buf, err = readInto((*buf)[:0], res.Body, pageLimit); err != nil {
		return page{}, err
	}
	p, err := readPage(*buf)
	if err != nil {
		err = responseError(res, res.Header.Get("X-Amz-Request-Id"), &smithy.DeserializationError{Err: err})
	}
	return p, err
}

// probe requests one entry of the listing, for the details in a possible error response.
func (r *reader) probe(ctx context.Context) error {
	q := r.pageOf(selection{}, "")
	q.query = "encoding-type=url&list-type=2&max-keys=1&prefix="
	res, err := r.get(ctx, q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, io.LimitReader(res.Body, refusalLimit))
	return err
}

// readInto appends all bytes of from to buf.
func readInto(buf []byte, from io.Reader, limit int) ([]byte, error) {
	for {
		if len(buf) == cap(buf) {
			buf = append(make([]byte, 0, len(buf)+max(len(buf)/4, 64<<10)), buf...)
		}
		n, err := from.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case errors.Is(err, io.EOF):
			return buf, nil
		case err != nil:
			return buf, err
		case len(buf) > limit:
			return buf, backends.Errorf(backends.Unsupported, "list", "", "the server sent a page of more than %d MiB", limit>>20)
		}
	}
}
