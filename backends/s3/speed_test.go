package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// canned is a connection to a server that answers each request, which is written at once, with the
// same bytes. It takes no system calls and no goroutines.
type canned struct {
	net.Conn // nil

	answer []byte
	rest   bytes.Reader
}

func (c *canned) Write(p []byte) (int, error) {
	c.rest.Reset(c.answer)
	return len(p), nil
}

func (c *canned) Read(p []byte) (int, error)     { return c.rest.Read(p) }
func (*canned) Close() error                     { return nil }
func (*canned) SetDeadline(time.Time) error      { return nil }
func (*canned) SetWriteDeadline(time.Time) error { return nil }
func (*canned) SetReadDeadline(time.Time) error  { return nil }
func (*canned) RemoteAddr() net.Addr             { return &net.TCPAddr{} }

// BenchmarkSmallObjects measures all that stager does for a small object but for the file, the network
// and the goroutines: a get of 50 KiB with its checksum, and a put of 20 KiB.
//
//	go test -bench SmallObjects -run '^$' -benchmem ./backends/s3
func BenchmarkSmallObjects(b *testing.B) {
	open := func(b *testing.B, answer string) *backends.Store {
		store := storeAt(b, newServer(b, http.NotFoundHandler()), "")
		raw, _ := store.Backend()
		raw.(*bucket).transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			return &canned{answer: []byte(answer)}, nil
		}
		raw.(*bucket).reader.client.CloseIdleConnections()
		b.ReportAllocs()
		return store
	}
	const head = "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nEtag: \"v1\"\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\nServer: s\r\n" +
		"X-Amz-Request-Id: 17A2B3C4D5E6F708\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
	b.Run("get", func(b *testing.B) {
		data := bytes.Repeat([]byte("0123456789"), 5120)
		h := backends.CRC64NVME.New()
		h.Write(data)
		store := open(b, fmt.Sprintf("%sContent-Type: application/octet-stream\r\nX-Amz-Checksum-Crc64nvme: %s\r\nX-Amz-Checksum-Type: FULL_OBJECT\r\nContent-Length: %d\r\n\r\n%s",
			head, base64.StdEncoding.EncodeToString(h.Sum(nil)), len(data), data))
		obj := backends.Object{Key: "directory/file-00001.bin", Size: int64(len(data)), Version: "v1"}
		for b.Loop() {
			h := backends.CRC64NVME.New()
			sum, err := store.ReadRange(b.Context(), obj, 0, obj.Size, nowhere{}, h)
			if err != nil || sum != backends.SumOf(backends.CRC64NVME, h) {
				b.Fatalf("got %v, %v; want the checksum of what arrived", sum, err)
			}
		}
	})
	b.Run("put", func(b *testing.B) {
		data := bytes.NewReader(bytes.Repeat([]byte("0123456789"), 2048))
		store := open(b, head+"Content-Length: 0\r\n\r\n")
		for b.Loop() {
			if _, err := store.Put(b.Context(), "directory/file-00001.bin", data, data.Size(), backends.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
