package servers

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A client says many things over one connection, and each answer ends where it must.
func TestQuickAnswersOneAfterTheOther(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	t.Run("http", func(t *testing.T) { quickConverses(t, StartQuick) })
	t.Run("https", func(t *testing.T) { quickConverses(t, StartQuickTLS) })
}

func quickConverses(t *testing.T, start func(dir, bucket string) (*Quick, error)) {
	dir := t.TempDir()
	large := strings.Repeat("0123456789abcdef", keepUpTo/16+1) // is not kept
	for name, text := range map[string]string{"small": "0123456789", "large": large, "empty": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	q, err := start(dir, "b")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := q.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}()
	etag, mark := q.files["small"].etag, quickMark+": it\r\n"
	conn, err := dialQuick(q)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	in := bufio.NewReader(conn)
	for _, tt := range []struct {
		method, path, head, body string

		status int
		want   string // the body; with … at its end it begins so
		header string // "Name: value", which the answer's head must have
	}{
		{method: "GET", path: "small", status: 200, want: "0123456789", header: "Etag: " + etag},
		{method: "GET", path: "small?x-id=GetObject", head: "If-Match: " + etag + "\r\n", status: 200, want: "0123456789", header: "X-Amz-Checksum-Type: FULL_OBJECT"},
		{method: "GET", path: "small", head: "If-Match: \"other\"\r\n", status: 412, want: "<?xml…"},
		{method: "HEAD", path: "small", status: 200, header: "Content-Length: 10"},
		{method: "HEAD", path: "nothing", status: 404},
		{method: "HEAD", path: "", status: 200},
		{method: "GET", path: "small", head: "Range: bytes=2-3\r\n", status: 206, want: "23", header: "Content-Range: bytes 2-3/10"},
		{method: "GET", path: "small", head: "Range: bytes=8-\r\n", status: 206, want: "89", header: "Content-Range: bytes 8-9/10"},
		{method: "GET", path: "small", head: "Range: bytes=0-52428799\r\n", status: 206, want: "0123456789", header: "Content-Range: bytes 0-9/10"},
		{method: "GET", path: "small", head: "Range: bytes=10-\r\n", status: 416, want: "<?xml…"},
		{method: "GET", path: "small", head: "Range: 1\r\n", status: 416, want: "<?xml…"},
		{method: "GET", path: "empty", status: 200},
		{method: "GET", path: "large", status: 200, want: large},
		{method: "GET", path: "large", head: fmt.Sprintf("Range: bytes=%d-\r\n", keepUpTo), status: 206, want: "0123456789abcdef"},
		{method: "GET", path: "nothing", status: 404, want: "<?xml…"},
		{method: "PUT", path: "new", body: "some", head: mark, status: 200, header: `Etag: "00000000000000000000000000000001"`},
		{method: "PUT", path: "new", body: "other", head: "If-None-Match: *\r\n", status: 412, want: "<?xml…"},
		{method: "GET", path: "new", status: 200, want: "some", header: quickMark + ": it"},
		{method: "POST", path: "parts?uploads", status: 200, want: "<?xml…"},
		{method: "PUT", path: "parts?partNumber=1&uploadId=2", body: large, status: 200},
		{method: "PUT", path: "parts?partNumber=2&uploadId=2", body: "two", head: "Expect: 100-continue\r\n", status: 200},
		{method: "POST", path: "parts?uploadId=2", body: "<C><Part><PartNumber>1</PartNumber></Part><Part><PartNumber>2</PartNumber></Part></C>", status: 200, want: "<?xml…"},
		{method: "GET", path: "parts", head: fmt.Sprintf("Range: bytes=%d-\r\n", keepUpTo), status: 206, want: "0123456789abcdeftwo"},
		{method: "GET", path: "?list-type=2&prefix=e", status: 200, want: `<?xml version="1.0" encoding="UTF-8"?>` + "\n<ListBucketResult><Name>b</Name><Prefix>e</Prefix><KeyCount>1</KeyCount>…"},
		{method: "DELETE", path: "parts", status: 204},
		{method: "GET", path: "parts", status: 404, want: "<?xml…"},
	} {
		name := tt.method + " " + tt.path + " " + strings.TrimSpace(tt.head)
		fmt.Fprintf(conn, "%s /b/%s HTTP/1.1\r\nHost: any\r\nContent-Length: %d\r\n%s\r\n", tt.method, tt.path, len(tt.body), tt.head)
		if strings.HasPrefix(tt.head, "Expect") {
			if line, err := in.ReadString('\n'); err != nil || line != "HTTP/1.1 100 Continue\r\n" {
				t.Fatalf("%s: %q, %v before the body, want to be asked for it", name, line, err)
			}
			if _, err := in.Discard(2); err != nil {
				t.Fatal(err)
			}
		}
		io.WriteString(conn, tt.body) //nolint:errcheck // the answer would be missing
		res, err := http.ReadResponse(in, &http.Request{Method: tt.method})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		begin, cut := strings.CutSuffix(tt.want, "…")
		if res.StatusCode != tt.status || !cut && string(body) != tt.want || !bytes.HasPrefix(body, []byte(begin)) {
			t.Errorf("%s: %d %.80q, want %d %.80q", name, res.StatusCode, body, tt.status, tt.want)
		}
		if key, value, _ := strings.Cut(tt.header, ": "); res.Header.Get(key) != value {
			t.Errorf("%s: the head has %v, want %s", name, res.Header, tt.header)
		}
	}
	io.WriteString(conn, "GET /b/small HTTP/1.1\r\nHost: any\r\nConnection: close\r\n\r\n") //nolint:errcheck // the answer would be missing
	if rest, err := io.ReadAll(in); err != nil || !bytes.HasSuffix(rest, []byte("\r\n\r\n0123456789")) {
		t.Errorf("with Connection: close comes %.200q, %v, want the file and the end", rest, err)
	}
}

func dialQuick(q *Quick) (net.Conn, error) {
	scheme, address, _ := strings.Cut(q.Endpoint, "://")
	if scheme == "http" {
		return net.Dial("tcp", address)
	}
	authority, err := os.ReadFile(q.CAFile)
	if err != nil {
		return nil, err
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(authority)
	return tls.Dial("tcp", address, &tls.Config{RootCAs: trusted})
}

// Who waits to be asked for a body and is refused keeps it.
func TestQuickRefusesABodyUnread(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	q, err := StartQuick(t.TempDir(), "b")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", strings.TrimPrefix(q.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "PUT /other/new HTTP/1.1\r\nHost: any\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n") //nolint:errcheck // the answer would be missing
	if all, err := io.ReadAll(conn); err != nil || !bytes.HasPrefix(all, []byte("HTTP/1.1 404 ")) {
		t.Errorf("%.100q, %v, want a refusal and the end", all, err)
	}
	open, err := net.Dial("tcp", strings.TrimPrefix(q.Endpoint, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	io.WriteString(open, "GET /b/ HTTP/1.1\r\nHost: any\r\n\r\n") //nolint:errcheck // the answer would be missing
	res, err := http.ReadResponse(bufio.NewReader(open), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(res.Body); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if n, err := open.Read(make([]byte, 1)); n > 0 || err == nil {
		t.Errorf("after Close come %d bytes, %v, want the end of the connection", n, err)
	}
}
