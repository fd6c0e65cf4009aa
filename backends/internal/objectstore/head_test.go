package objectstore

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
)

// plainHead is what a store sends with an object.
const plainHead = "HTTP/1.1 206 Partial Content\r\nServer: store\r\nDate: Tue, 24 Nov 2026 10:00:00 GMT\r\nContent-Type: application/octet-stream\r\nContent-Length: 5\r\n" +
	"ETag: \"e\"\r\nContent-Range: bytes 0-4/9\r\nx-amz-checksum-crc64nvme:AAAAAAAAAAA=\t\r\nX-Amz-Meta-Any: a\r\nVary: Origin\r\nvary: Accept-Encoding\r\nEmpty:\r\n\r\n"

// heads are responses of every kind that readHead distinguishes; true for those that it reads itself.
var heads = map[string]bool{
	plainHead + "hello": true,
	plainHead + "he":    true, // the connection ends early
	"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nnext":                                     true,
	"HTTP/1.1 200 OK\r\nContent-Length: 00005\r\n\r\nhello, next":                          true,
	"HTTP/1.1 200 \r\nContent-Length: 1\r\n\r\nh":                                          true,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r":                                           false, // incomplete
	"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello":                                       false,
	"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello":                                    false, // closes the connection
	"HTTP/1.1 204 No Content\r\n\r\n":                                                      false,
	"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nh":           false,
	"HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nhello":                             false,
	"HTTP/1.1 200 OK\r\n\r\nhello":                                                         false, // until the connection ends
	"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":         false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n":  false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello":               false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nPragma: no-cache\r\n\r\nhello":                false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTrailer: A\r\n\r\nhello":                      false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello":               false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\ncontent-length: 6\r\n\r\nhello":               false,
	"HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\nhello":                                   false,
	"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nhello":                                   false,
	"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\nhello":                 false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n c\r\n\r\nhello":                      false, // a continued line
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n A: b\r\n\r\nhello":                           false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA : b\r\n\r\nhello":                           false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nno colon\r\n\r\nhello":                        false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n: no name\r\n\r\nhello":                       false,
	"HTTP/1.1 200 \n\r\nContent-Length: 0\r\n\r\n":                                         false, // the head ends after its first line
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\n\r\n\r\nhello":                              false,
	"HTTP/1.1 200 \r\nContent-Length:00\r\r\n\r\n":                                         false, // net/http refuses it
	"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello":                                          false,
	"HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\nhello":                                      false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\nContent-Length: 6\r\n\r\nhello":         false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\x00\r\n\r\nhello":                        false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\rContent-Length: 6\r\n\r\nhello":         false,
	"HTTP/1.1 2000 OK\r\nContent-Length: 5\r\n\r\nhello":                                   false,
	"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: " + strings.Repeat("b", 4096) + "\r\n\r\n": false, // longer than the buffer
	"": false,
}

// parsed is what a caller sees of a response: its fields, the bytes of its body and why they end, and the bytes behind it.
type parsed struct {
	Status, Proto string
	Code          int
	Length        int64
	Header        http.Header
	Close         bool
	Encoding      []string
	Body, Behind  string
	err           error
}

func parse(t *testing.T, in *bufio.Reader, res *http.Response) (p parsed) {
	t.Helper()
	p = parsed{Status: res.Status, Proto: res.Proto, Code: res.StatusCode, Length: res.ContentLength, Header: res.Header, Close: res.Close, Encoding: res.TransferEncoding}
	body, err := io.ReadAll(res.Body)
	behind, _ := io.ReadAll(in)
	p.Body, p.Behind, p.err = string(body), string(behind), err
	return p
}

// check reports whether readHead read the response, and compares the result with that of net/http.
func check(t *testing.T, text []byte, method string) bool {
	t.Helper()
	req := &http.Request{Method: method}
	in := bufio.NewReaderSize(bytes.NewReader(text), headBuffer)
	in.Peek(1) //nolint:errcheck // fills the buffer as far as it goes
	before := in.Buffered()
	res := readHead(in, req)
	if res == nil {
		if in.Buffered() != before {
			t.Errorf("%q: %d bytes are left of %d that are for net/http", text, in.Buffered(), before)
		}
		return false
	}
	got := parse(t, in, res)
	other := bufio.NewReaderSize(bytes.NewReader(text), headBuffer)
	res, err := http.ReadResponse(other, req)
	if err != nil {
		t.Errorf("%q: net/http refuses it: %v", text, err)
		return true
	}
	want := parse(t, other, res)
	if !errors.Is(got.err, want.err) && (got.err == nil || want.err == nil || got.err.Error() != want.err.Error()) {
		t.Errorf("%q: got error %v, want %v as of net/http", text, got.err, want.err)
	}
	got.err, want.err = nil, nil
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q: got\n%+v, want as of net/http\n%+v", text, got, want)
	}
	return true
}

func TestPlainHeadIsReadAsByNetHTTP(t *testing.T) {
	for text, want := range heads {
		for _, method := range []string{"", http.MethodGet, http.MethodPut, http.MethodHead} {
			if got, want := check(t, []byte(text), method), want && method != http.MethodHead; got != want {
				t.Errorf("%s %q: it is read: %v, want %v", method, text, got, want)
			}
		}
	}
}

func FuzzHead(f *testing.F) {
	for text := range heads {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { check(t, text, http.MethodGet) })
}

func BenchmarkHead(b *testing.B) {
	req := &http.Request{Method: http.MethodGet}
	for name, read := range map[string]func(in *bufio.Reader) bool{
		"own":      func(in *bufio.Reader) bool { return readHead(in, req) != nil },
		"net_http": func(in *bufio.Reader) bool { _, err := http.ReadResponse(in, req); return err == nil },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			from := strings.NewReader("")
			in := bufio.NewReaderSize(from, headBuffer)
			for b.Loop() {
				from.Reset(plainHead)
				in.Reset(from)
				in.Peek(1) //nolint:errcheck // fills the buffer
				if !read(in) {
					b.Fatal("it is not read")
				}
			}
		})
	}
}
