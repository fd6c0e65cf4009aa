package git

import (
	"bytes"
	"context"
	"crypto/sha1" // as Git does; not for security
	"crypto/sha256"
	"hash"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

const (
	service        = "git-upload-pack"
	discovery      = "/info/refs" // after the path of the repository
	advertisedType = "application/x-" + service + "-advertisement"
	requestType    = "application/x-" + service + "-request"
	resultType     = "application/x-" + service + "-result"
	maxRedirects   = 5
	maxLines       = 1 << 20 // of a response with lines
)

// remote is a repository of a server, by version 2 of Git's protocol.
type remote struct {
	base          *url.URL // of the repository, after redirects
	home          *url.URL // the host that gets the Authorization header
	authorization string
	client        *http.Client
	abilities     map[string]string // of the server, by name
}

// send sends a request and returns the response, if its status is 200 or a redirect.
func (r *remote) send(ctx context.Context, method string, at *url.URL, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, at.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("User-Agent", "git/2.0 (stager)") // some servers show others a web page
	req.Header.Set("Git-Protocol", "version=2")
	if body != nil {
		req.Header.Set("Content-Type", requestType)
		req.Header.Set("Accept", resultType)
	}
	if r.authorization != "" && objectstore.SameHost(at, r.home) {
		req.Header.Set("Authorization", r.authorization)
	}
	return r.client.Do(req)
}

// pageError reports a web page instead of a response of Git.
func pageError(res *http.Response) error {
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") {
		return backends.Errorf(backends.Invalid, "open", "", "the server responds with a web page: the path before // is not that of a repository")
	}
	return backends.Errorf(backends.Unsupported, "open", "", "%w: it offers no Git over HTTP at this path", errNoPacket)
}

// discover asks what the server can do, and follows its redirects.
func (r *remote) discover(ctx context.Context) error {
	at := r.base.JoinPath(discovery)
	at.RawQuery = "service=" + service
	for range maxRedirects {
		res, err := r.send(ctx, http.MethodGet, at, nil)
		if err != nil {
			return err
		}
		next, err := objectstore.Redirect(res, at)
		switch {
		case err != nil:
			objectstore.Discard(res)
			return err
		case next != nil:
			objectstore.Discard(res)
			if !strings.HasSuffix(next.Path, discovery) {
				return backends.Errorf(backends.Permission, "open", "", "the server redirects to a page for people: the repository does not exist, or needs credentials")
			}
			at = next
			continue
		case res.StatusCode != http.StatusOK:
			return objectstore.Refusal(res)
		}
		defer res.Body.Close() // it was read
		if res.Header.Get("Content-Type") != advertisedType {
			return pageError(res)
		}
		base := *at
		base.Path, base.RawPath, base.RawQuery = strings.TrimSuffix(at.Path, discovery), "", ""
		r.base = &base
		return r.advertised(newPackets(res.Body))
	}
	return backends.Errorf(backends.Unsupported, "open", "", "the server redirects more than %d times", maxRedirects)
}

// advertised reads the abilities of the server. Some servers write the service before.
func (r *remote) advertised(in *packets) error {
	line, _, err := in.line()
	if err == nil && strings.HasPrefix(line, "# service=") {
		if _, _, err = in.line(); err == nil { // it ends the service
			line, _, err = in.line()
		}
	}
	if err != nil {
		return err
	}
	if line != "version 2" {
		return backends.Errorf(backends.Unsupported, "open", "", "the server knows no version 2 of Git's protocol: it needs Git 2.18 or later, and a proxy before it must pass the header Git-Protocol")
	}
	r.abilities = make(map[string]string)
	for range maxLines {
		line, more, err := in.line()
		if err != nil || !more {
			return err
		}
		name, value, _ := strings.Cut(line, "=")
		r.abilities[name] = value
	}
	return errNoPacket
}

// can reports whether the server has a feature of a command.
func (r *remote) can(command, feature string) bool {
	for _, f := range strings.Fields(r.abilities[command]) {
		if f == feature {
			return true
		}
	}
	return false
}

// hash returns the hash of the repository's objects.
func (r *remote) hash() (func() hash.Hash, error) {
	switch format := r.abilities["object-format"]; format {
	case "", "sha1":
		return sha1.New, nil
	case "sha256":
		return sha256.New, nil
	default:
		return nil, backends.Errorf(backends.Unsupported, "open", "", "the repository has hashes of the unknown kind %q", objectstore.OneLine(format))
	}
}

// call sends a command. The caller closes the response.
func (r *remote) call(ctx context.Context, command string, args []string) (*packets, io.Closer, error) {
	body := appendPacket(nil, "command="+command)
	if format := r.abilities["object-format"]; format != "" {
		body = appendPacket(body, "object-format="+format)
	}
	body = append(body, "0001"...)
	for _, arg := range args {
		body = appendPacket(body, arg)
	}
	res, err := r.send(ctx, http.MethodPost, r.base.JoinPath(service), append(body, "0000"...))
	switch {
	case err != nil:
		return nil, nil, err
	case res.StatusCode != http.StatusOK:
		return nil, nil, objectstore.Refusal(res)
	case res.Header.Get("Content-Type") != resultType:
		_ = res.Body.Close() // it is of no use
		return nil, nil, pageError(res)
	}
	moving := objectstore.Moving(ctx, res.Body)
	return newPackets(moving), moving, nil
}
