package s3

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
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

// calling is canned, and a destination, with the system calls that both take at least: each of its
// bytes is copied by the kernel, too, and each object becomes a file. spent is how long these last.
type calling struct {
	canned

	dir   *os.Root
	net   *os.File // in place of a socket; larger than the processor's caches
	at    int64
	copy  [64 << 10]byte
	spent time.Duration
	err   error
}

const netSize = 64 << 20

// call makes a system call.
func (c *calling) call(f func() error) {
	since := time.Now()
	c.err = errors.Join(c.err, f())
	c.spent += time.Since(since)
}

func (c *calling) Write(p []byte) (int, error) {
	c.call(func() error { _, err := c.net.WriteAt(p, 0); return err })
	return c.canned.Write(p)
}

func (c *calling) Read(p []byte) (int, error) {
	n, err := c.canned.Read(p)
	c.call(func() error { _, err := c.net.ReadAt(c.copy[:min(n, len(c.copy))], c.at); return err })
	c.at = (c.at + int64(n)) % (netSize - int64(len(c.copy)))
	return n, err
}

func (c *calling) WriteAt(p []byte, off int64) (int, error) {
	c.call(func() error {
		file, err := c.dir.Create("incoming")
		if err != nil {
			return err
		}
		_, err = file.WriteAt(p, off)
		return errors.Join(err, file.Close(), c.dir.Rename("incoming", "object"))
	})
	return len(p), nil
}

// BenchmarkSmallObjects measures all that stager does for a small object but for the file, the network
// and the goroutines: a get of 50 KiB with its checksum, and a put of 20 KiB. "get-calling" is the same
// get among the system calls of files and sockets, and own-ns what it takes without these.
//
//	go test -bench SmallObjects -run '^$' -benchmem ./backends/s3
func BenchmarkSmallObjects(b *testing.B) {
	open := func(b *testing.B, conn net.Conn) *backends.Store {
		store := storeAt(b, newServer(b, http.NotFoundHandler()), "")
		raw, _ := store.Backend()
		raw.(*bucket).transport.DialContext = func(context.Context, string, string) (net.Conn, error) { return conn, nil }
		raw.(*bucket).reader.client.CloseIdleConnections()
		b.ReportAllocs()
		return store
	}
	const head = "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nEtag: \"v1\"\r\nLast-Modified: Mon, 30 Nov 2026 00:00:00 GMT\r\nServer: s\r\n" +
		"X-Amz-Request-Id: 17A2B3C4D5E6F708\r\nDate: Mon, 30 Nov 2026 00:00:00 GMT\r\n"
	data := bytes.Repeat([]byte("0123456789"), 5120)
	h := backends.CRC64NVME.New()
	h.Write(data)
	answer := canned{answer: fmt.Appendf(nil, "%sContent-Type: application/octet-stream\r\nX-Amz-Checksum-Crc64nvme: %s\r\nX-Amz-Checksum-Type: FULL_OBJECT\r\nContent-Length: %d\r\n\r\n%s",
		head, base64.StdEncoding.EncodeToString(h.Sum(nil)), len(data), data)}
	get := func(b *testing.B, conn net.Conn, dst io.WriterAt) {
		store := open(b, conn)
		obj := backends.Object{Key: "directory/file-00001.bin", Size: int64(len(data)), Version: "v1"}
		for b.Loop() {
			h := backends.CRC64NVME.New()
			sum, err := store.ReadRange(b.Context(), obj, 0, obj.Size, dst, h)
			if err != nil || sum != backends.SumOf(backends.CRC64NVME, h) {
				b.Fatalf("got %v, %v; want the checksum of what arrived", sum, err)
			}
		}
	}
	b.Run("get", func(b *testing.B) { get(b, &answer, nowhere{}) })
	b.Run("get-calling", func(b *testing.B) {
		dir, err := os.OpenRoot(b.TempDir())
		if err != nil {
			b.Fatal(err)
		}
		defer dir.Close()
		inPlace, err := dir.Create("net")
		if err != nil {
			b.Fatal(err)
		}
		defer inPlace.Close()
		if _, err := inPlace.Write(make([]byte, netSize)); err != nil {
			b.Fatal(err)
		}
		c := &calling{canned: answer, dir: dir, net: inPlace}
		get(b, c, c)
		if c.err != nil {
			b.Fatal(c.err)
		}
		b.ReportMetric(float64(b.Elapsed()-c.spent)/float64(b.N), "own-ns/op")
	})
	b.Run("put", func(b *testing.B) {
		data := bytes.NewReader(bytes.Repeat([]byte("0123456789"), 2048))
		store := open(b, &canned{answer: []byte(head + "Content-Length: 0\r\n\r\n")})
		for b.Loop() {
			if _, err := store.Put(b.Context(), "directory/file-00001.bin", data, data.Size(), backends.CreateOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
