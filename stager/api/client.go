package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Client calls the API on a socket. It uses a new connection for each call.
type Client struct{ Socket string }

// UnreachableError reports that no daemon responds.
type UnreachableError struct {
	Socket string
	Err    error
}

func (e *UnreachableError) Error() string {
	return fmt.Sprintf("cannot connect to stager on %s (%v); is \"stager run\" running, and is this its --socket?", e.Socket, e.Err)
}

// Unwrap returns the cause.
func (e *UnreachableError) Unwrap() error { return e.Err }

// RefusedError is an error response of the daemon.
type RefusedError struct {
	Status int // HTTP status
	Words  string
}

func (e *RefusedError) Error() string { return e.Words }

// Unready reports whether an error means that the daemon is not running yet, or not ready.
func Unready(err error) bool {
	_, gone := errors.AsType[*UnreachableError](err)
	refused, is := errors.AsType[*RefusedError](err)
	return gone || is && refused.Status == http.StatusServiceUnavailable
}

// Call sends a request and decodes the response into out, unless out is nil. It returns the status
// code and header of the response. Errors include *UnreachableError and *RefusedError.
func (c Client) Call(ctx context.Context, method, path string, query url.Values, in, out any) (int, http.Header, error) {
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{Timeout: 5 * time.Second}).DialContext(ctx, "unix", c.Socket)
		},
	}}
	var body io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return 0, nil, err
		}
		body = bytes.NewReader(text)
	}
	target := url.URL{Scheme: "http", Host: "stager", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, target.String(), body)
	if err != nil {
		return 0, nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		if ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if cause, is := errors.AsType[*net.OpError](err); is {
			err = cause.Err
		}
		return 0, nil, &UnreachableError{c.Socket, err}
	}
	defer resp.Body.Close() // read completely below
	if resp.StatusCode >= http.StatusBadRequest {
		var f Failure
		if err := json.NewDecoder(resp.Body).Decode(&f); err != nil || f.Error == "" {
			f.Error = "the daemon returned " + resp.Status
		}
		return resp.StatusCode, resp.Header, &RefusedError{resp.StatusCode, f.Error}
	}
	if out != nil && resp.StatusCode != http.StatusNoContent {
		if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
			return resp.StatusCode, resp.Header, fmt.Errorf("cannot read the daemon's response: %w", err)
		}
	}
	return resp.StatusCode, resp.Header, nil
}
