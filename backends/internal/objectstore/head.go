package objectstore

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	"golang.org/x/net/http/httpguts"
)

// readHead reads the head of a plain response: with status 200 or 206 and a Content-Length, and with nothing else that
// concerns its body or its connection. It returns nil, and reads nothing, if the response is of another kind or its head
// is not complete in the buffer. Then http.ReadResponse reads it, with the same result, but it
// takes several times as long, which is a noticeable part of a small object.
func readHead(in *bufio.Reader, req *http.Request) *http.Response {
	buf, err := in.Peek(in.Buffered())
	end := bytes.Index(buf, []byte("\r\n\r\n"))
	if err != nil || end < 0 || req.Method == http.MethodHead {
		return nil
	}
	head := string(buf[:end+len("\r\n")])
	n := strings.Count(head, "\r\n")
	if strings.Count(head, "\r") != n || strings.Count(head, "\n") != n {
		return nil // a single "\n" ends a line, too
	}
	n-- // the first one is no header
	first, lines, _ := strings.Cut(head, "\r\n")
	status, ok := strings.CutPrefix(first, "HTTP/1.1 ")
	if !ok || !strings.HasPrefix(status, "200 ") && !strings.HasPrefix(status, "206 ") {
		return nil
	}
	values := make([]string, n) // of all headers, so that each takes no memory of its own
	res := &http.Response{
		Status: status, StatusCode: int(status[1]-'0')*10 + int(status[2]-'0') + 200,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: make(http.Header, n), ContentLength: -1, Request: req,
	}
	for len(lines) > 0 {
		var line string
		line, lines, _ = strings.Cut(lines, "\r\n")
		name, value, ok := strings.Cut(line, ":")
		value = strings.Trim(value, " \t")
		if !ok || !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil // malformed, or continues the line before
		}
		name = canonicalName(name)
		switch name {
		case "Connection", "Pragma", "Trailer", "Transfer-Encoding":
			return nil
		case "Content-Length":
			length, err := strconv.ParseUint(value, 10, 63)
			if err != nil || res.ContentLength >= 0 {
				return nil
			}
			res.ContentLength = int64(length)
		}
		if before := res.Header[name]; before != nil {
			res.Header[name] = append(before, value)
			continue
		}
		values[0] = value
		res.Header[name], values = values[:1:1], values[1:]
	}
	if res.ContentLength < 0 {
		return nil
	}
	in.Discard(end + len("\r\n\r\n")) //nolint:errcheck // it is buffered
	res.Body = http.NoBody
	if res.ContentLength > 0 {
		res.Body = &sizedBody{in: in, left: res.ContentLength}
	}
	return res
}

// sizedBody is a body of known size. Read returns io.EOF together with the last bytes.
type sizedBody struct {
	in   *bufio.Reader
	left int64
}

func (b *sizedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}
	n, err := b.in.Read(p[:min(int64(len(p)), b.left)])
	b.left -= int64(n)
	switch {
	case b.left == 0:
		err = io.EOF
	case err == io.EOF:
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// Close does nothing: responseBody, which contains the body, releases the connection.
func (b *sizedBody) Close() error { return nil }

// canonicalName is textproto.CanonicalMIMEHeaderKey, and takes no memory for the names that object stores use.
func canonicalName(name string) string {
	if known, ok := canonicalNames[name]; ok {
		return known
	}
	return textproto.CanonicalMIMEHeaderKey(name)
}

// canonicalNames are the canonical names by those that servers send.
var canonicalNames = func() map[string]string {
	names := make(map[string]string)
	for _, sent := range []string{
		"Accept-Ranges", "Content-Length", "Content-Range", "Content-Type", "Date", "ETag", "Last-Modified", "Server", "Vary", "X-Content-Type-Options",
		"X-Xss-Protection", "X-Amz-Bucket-Region", "X-Amz-Checksum-Crc64nvme", "X-Amz-Checksum-Type", "X-Amz-Id-2", "X-Amz-Meta-Stager-Write", "X-Amz-Request-Id",
		"X-Amz-Server-Side-Encryption", "X-Amz-Version-Id", "X-Oss-Hash-Crc64ecma", "X-Oss-Object-Type", "X-Oss-Request-Id", "X-Oss-Server-Time", "X-Oss-Storage-Class",
		"X-Goog-Generation", "X-Goog-Hash", "X-Goog-Metageneration", "X-Ms-Request-Id", "X-Ms-Version",
	} {
		canonical := textproto.CanonicalMIMEHeaderKey(sent)
		names[sent], names[canonical], names[strings.ToLower(sent)] = canonical, canonical, canonical
	}
	return names
}()
