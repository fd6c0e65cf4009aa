package hdfs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
)

// inner returns the backend of a Store.
func inner(s *backends.Store) *store {
	b, _ := s.Backend()
	return b.(*store)
}

// checked compares the data written to it with the expected contents.
type checked struct {
	want  *conformance.Contents
	bytes atomic.Int64
	wrong atomic.Int64
	first func() // called once, after the first bytes
}

func (c *checked) WriteAt(p []byte, off int64) (int, error) {
	want := make([]byte, len(p))
	if n, _ := c.want.ReadAt(want, off); n != len(p) || string(want) != string(p) {
		c.wrong.Add(1)
	}
	if c.bytes.Add(int64(len(p))) == int64(len(p)) && c.first != nil {
		c.first()
	}
	return len(p), nil
}

// patient opens a directory with the retries of the real program.
func patient(t *testing.T, path string) *backends.Store {
	t.Helper()
	short := openLive(t, path)
	s := backends.NewStore(inner(short), short.Name(), backends.Options{RetryFor: time.Minute})
	return s.Sub(strings.Trim(path, "/"))
}

func TestServersKilledWhileAFileIsRead(t *testing.T) {
	for _, daemon := range []string{"datanode", "namenode"} {
		if testing.Short() && daemon == "namenode" {
			continue // it is killed while a file is written
		}
		t.Run(daemon, func(t *testing.T) {
			server, s := need(t), patient(t, directory(t))
			const size = 96 << 20
			contents := conformance.ContentsOf("kill "+daemon, size)
			obj, err := s.Put(t.Context(), "k", contents, size, backends.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			to := &checked{want: contents}
			killed := make(chan struct{})
			to.first = func() {
				server.Order(t, "kill "+daemon)
				close(killed)
			}
			var g errgroup.Group
			const part = 16 << 20
			for off := int64(0); off < size; off += part {
				g.Go(func() error {
					_, err := s.ReadRange(t.Context(), obj, off, part, to, nil)
					return err
				})
			}
			<-killed
			time.Sleep(time.Second)
			server.Order(t, "start "+daemon)
			start := time.Now()
			if err := g.Wait(); err != nil {
				t.Errorf("reading while the %s was killed: %v", daemon, err)
			}
			t.Logf("done %v after it was started again", time.Since(start).Round(time.Millisecond))
			if to.wrong.Load() > 0 || to.bytes.Load() != size {
				t.Errorf("%d bytes of %d came, and %d pieces were wrong", to.bytes.Load(), size, to.wrong.Load())
			}
			server.Order(t, "ready")
		})
	}
}

func TestServersKilledWhileAFileIsWritten(t *testing.T) {
	for _, daemon := range []string{"datanode", "namenode"} {
		if testing.Short() && daemon == "datanode" {
			continue // it is killed while a file is read
		}
		t.Run(daemon, func(t *testing.T) {
			server, s := need(t), patient(t, directory(t))
			const size = 48 << 20
			contents := conformance.ContentsOf("kill "+daemon, size)
			killed := make(chan struct{})
			var read atomic.Int64
			src := readerAt(func(p []byte, off int64) (int, error) {
				if n := read.Add(int64(len(p))); n > size/2 && n-int64(len(p)) <= size/2 {
					server.Order(t, "kill "+daemon)
					close(killed)
				}
				return contents.ReadAt(p, off)
			})
			go func() {
				<-killed
				time.Sleep(500 * time.Millisecond)
				server.Order(t, "start "+daemon)
			}()
			obj, err := s.Put(t.Context(), "k", src, size, backends.CreateOptions{IfAbsent: true})
			if err != nil {
				t.Fatal(err)
			}
			to := &checked{want: contents}
			if _, err := s.ReadRange(t.Context(), obj, 0, size, to, nil); err != nil || to.wrong.Load() > 0 {
				t.Errorf("reading it: %v, %d pieces wrong", err, to.wrong.Load())
			}
			server.Order(t, "ready")
			var keys []string
			for obj, err := range s.List(t.Context(), "") {
				if err != nil {
					t.Fatal(err)
				}
				keys = append(keys, obj.Key)
			}
			if len(keys) != 1 {
				t.Errorf("list = %q, want k alone", keys)
			}
			// Writers that failed while the NameNode was down left files that listings omit.
			b := inner(s)
			if err := b.with(t.Context(), "list", "", func(ses *session) error {
				files, _, err := ses.list("/"+b.base, "")
				if len(files) != 1 {
					t.Errorf("%d files in the directory, want 1", len(files))
				}
				return err
			}); err != nil {
				t.Error(err)
			}
		})
	}
}

type readerAt func([]byte, int64) (int, error)

func (r readerAt) ReadAt(p []byte, off int64) (int, error) { return r(p, off) }

// listener accepts connections and runs serve for each, until the test ends.
func listener(t *testing.T, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
	return l.Addr().String()
}

func silent(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// alone opens a store with the given NameNodes and without retries.
func alone(t *testing.T, addresses ...string) *store {
	t.Helper()
	o, err := Scheme().Open(t.Context(), backends.Target{Scheme: "hdfs", Host: addresses[0], Params: map[string][]string{"user": {"stager"}}})
	if err != nil {
		t.Fatal(err)
	}
	b := o.Backend.(*store)
	b.pool.addresses = addresses
	t.Cleanup(func() { b.Close() })
	return b
}

func TestNameNodeSilent(t *testing.T) {
	b := alone(t, listener(t, silent))
	b.pool.patience.namenode = 300 * time.Millisecond
	start := time.Now()
	_, err := b.Stat(t.Context(), "k")
	if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || took > 5*time.Second || !strings.Contains(err.Error(), "silent for too long") {
		t.Errorf("got %v (%v) after %v, want kind unavailable within the deadline", err, backends.KindOf(err), took)
	}
	b.pool.patience = usual
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	start = time.Now()
	_, err = b.Stat(ctx, "k")
	if took := time.Since(start); backends.KindOf(err) != backends.Canceled || took > 5*time.Second {
		t.Errorf("got %v (%v) after %v, want kind canceled with the context", err, backends.KindOf(err), took)
	}
	if usual.namenode > backends.DefaultStallAfter || 2*usual.datanode > backends.DefaultStallAfter || usual.write > backends.DefaultStallAfter {
		t.Errorf("the deadlines %+v are longer than a Store waits", usual)
	}
}

func TestDataNodeSilent(t *testing.T) {
	s := openLive(t, directory(t))
	obj, err := s.PutBytes(t.Context(), "k", []byte("bytes"), backends.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	b := inner(s)
	b.pool.close() // discards the sessions with normal connections
	b.pool.closed = false
	b.pool.patience.datanode, b.pool.patience.write = 300*time.Millisecond, 300*time.Millisecond
	dead := listener(t, silent)
	namenode := need(t).Env["HDFS_SERVER"]
	b.pool.net = func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != namenode {
			address = dead
		}
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	obj.Key = b.base + "/k"
	start := time.Now()
	body, err := b.OpenRange(t.Context(), obj, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	_, err = io.ReadAll(body)
	if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || took > 5*time.Second {
		t.Errorf("reading: %v after %v, want kind unavailable within the deadline", err, took)
	}
	body.Close()
	w, err := b.Create(t.Context(), b.base+"/new", backends.CreateOptions{Size: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	start = time.Now()
	_, err = w.Write([]byte("bytes"))
	if took := time.Since(start); backends.KindOf(err) != backends.Unavailable || took > 5*time.Second {
		t.Errorf("writing: %v after %v, want kind unavailable within the deadline", err, took)
	}
	if _, err := w.Commit(t.Context()); err == nil {
		t.Error("commit works though no byte was taken")
	}
}

func TestServersOfOtherProtocols(t *testing.T) {
	refused := listener(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 7))
		typ, err := protoregistry.GlobalTypes.FindMessageByName("hadoop.common.RpcResponseHeaderProto")
		if err != nil {
			t.Error(err)
			return
		}
		m := typ.New()
		set := func(name protoreflect.Name, v any) {
			m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(v))
		}
		set("callId", uint32(0xffffffdf)) // -33
		set("status", protoreflect.EnumNumber(2))
		set("exceptionClassName", "org.apache.hadoop.security.AccessControlException")
		set("errorMsg", "SIMPLE authentication is not enabled.  Available:[TOKEN, KERBEROS]")
		var body strings.Builder
		_, _ = protodelim.MarshalTo(&body, m.Interface())
		_, _ = c.Write([]byte{0, 0, 0, byte(body.Len())})
		_, _ = io.WriteString(c, body.String())
		silent(c)
	})
	web := listener(t, func(c net.Conn) {
		_, _ = io.ReadFull(c, make([]byte, 7))
		_, _ = io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		silent(c) // closing at once might fail the write of the greeting instead
	})
	gone := listener(t, func(net.Conn) {})
	for _, tt := range []struct {
		what, address string
		kind          backends.Kind
		words         string
	}{
		{"one that wants Kerberos", refused, backends.Permission, "requires Kerberos"},
		{"a web port", web, backends.Invalid, "8020"},
		{"one that hangs up", gone, backends.Unavailable, ""},
		{"nobody", "127.0.0.1:1", backends.Unavailable, "refused"},
		{"a name that is none", "namenode.invalid:8020", backends.Unavailable, "namenode.invalid"},
	} {
		_, err := alone(t, tt.address).Stat(t.Context(), "k")
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("%s: got %v (%v), want kind %v and %q", tt.what, err, backends.KindOf(err), tt.kind, tt.words)
		}
	}
}

func TestNameNodeFailover(t *testing.T) {
	namenode := need(t).Env["HDFS_SERVER"]
	b := alone(t, "127.0.0.1:1", namenode)
	for range 2 {
		if _, err := b.Stat(t.Context(), "missing"); backends.KindOf(err) != backends.NotExist {
			t.Errorf("got %v, want kind not-exist", err)
		}
	}
	if got := b.pool.addresses[0]; got != namenode {
		t.Errorf("the NameNode asked first is %s, want the one that answers", got)
	}
}

// deaf loses the response to one request.
type deaf struct {
	net.Conn
	to   string
	lost *atomic.Int32
	hit  bool
}

func (d *deaf) Write(p []byte) (int, error) {
	if strings.Contains(string(p), d.to) && d.lost.CompareAndSwap(0, 1) {
		d.hit = true
	}
	return d.Conn.Write(p)
}

func (d *deaf) Read(p []byte) (int, error) {
	n, err := d.Conn.Read(p)
	if d.hit {
		d.Conn.Close()
		return 0, errors.New("the answer was lost")
	}
	return n, err
}

func TestRenameWithLostResponse(t *testing.T) {
	s := openLive(t, directory(t))
	b := inner(s)
	var lost atomic.Int32
	b.pool.net = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		return &deaf{Conn: c, to: "rename2", lost: &lost}, err
	}
	put, err := s.PutBytes(t.Context(), "k", []byte("once"), backends.CreateOptions{IfAbsent: true})
	if err != nil || lost.Load() != 1 {
		t.Errorf("Put = %v with %d answers lost, want success after one", err, lost.Load())
	}
	if got, err := s.Stat(t.Context(), "k"); err != nil || got.Version != put.Version {
		t.Errorf("Stat = %+v, %v; want %+v", got, err, put)
	}
}
