package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// serve starts a local server that handles one connection at a time.
func serve(t *testing.T, handle func(c net.Conn)) Dialer {
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
				handle(c)
			}()
		}
	}()
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", l.Addr().String())
	}
}

// pipe returns connections in memory, for tests in virtual time.
func pipe(handle func(c net.Conn)) Dialer {
	return func(context.Context) (net.Conn, error) {
		near, far := net.Pipe()
		go func() {
			defer far.Close()
			handle(far)
		}()
		return near, nil
	}
}

func client(t *testing.T, dial Dialer, opts Options) *Client {
	t.Helper()
	c := NewClient(dial, 1, opts)
	t.Cleanup(func() { c.Close() })
	return c
}

// receive reads a call and returns its transaction id and the argument that call encoded.
func receive(c net.Conn) (xid, arg uint32, err error) {
	r, err := readRecord(c, 1<<20, unexpected)
	if err != nil {
		return 0, 0, err
	}
	record := r.bytes()
	return binary.BigEndian.Uint32(record), binary.BigEndian.Uint32(record[len(record)-4:]), nil
}

// unexpected returns what calls without bytes of a file expect.
func unexpected(uint32) expected { return expected{} }

// reply returns an accepted reply with a result.
func reply(xid uint32, words ...uint32) []byte {
	var e Encoder
	for _, v := range append([]uint32{0, xid, 1, 0, 0, 0}, words...) {
		e.Uint32(v)
	}
	_, _ = e.finish()
	binary.BigEndian.PutUint32(e.b, uint32(len(e.b)-4)|1<<31)
	return e.b
}

func call(ctx context.Context, c *Client, arg uint32) (uint32, error) {
	msg := NewCall(System("machine", 1, 2, []uint32{3}), 7, 1, 1, 0)
	msg.Uint32(arg)
	r, err := c.Call(ctx, msg)
	if err != nil {
		return 0, err
	}
	defer r.Release()
	v := r.Uint32()
	return v, r.Err()
}

func TestResponsesArriveInAnyOrder(t *testing.T) {
	c := client(t, serve(t, func(c net.Conn) {
		var waiting [][2]uint32
		for {
			xid, arg, err := receive(c)
			if err != nil {
				return
			}
			if waiting = append(waiting, [2]uint32{xid, arg}); len(waiting) < 3 {
				continue
			}
			for i := len(waiting) - 1; i >= 0; i-- {
				_, _ = c.Write(reply(999_999, 0, 1)) // for no pending call
				_, _ = c.Write(reply(waiting[i][0], 0, waiting[i][1]+1))
			}
			waiting = nil
		}
	}), Options{})
	got := make(chan error, 3)
	for i := range uint32(3) {
		go func() {
			v, err := call(t.Context(), c, 10*i)
			if err == nil && v != 10*i+1 {
				err = errors.New("another call's answer")
			}
			got <- err
		}()
	}
	for range 3 {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
}

func TestRepliesOfServers(t *testing.T) {
	for name, tt := range map[string]struct {
		answer func(xid uint32) []byte
		want   string
	}{
		"mismatch":     {func(x uint32) []byte { return reply(x, 2, 3, 4) }, "versions 3 to 4"},
		"no program":   {func(x uint32) []byte { return reply(x, 1) }, "does not serve this program"},
		"short":        {func(x uint32) []byte { return reply(x) }, "truncated"},
		"short result": {func(x uint32) []byte { return reply(x, 0) }, "truncated"},
		"too long":     {func(uint32) []byte { return []byte{0xff, 0xff, 0xff, 0xff} }, "at most"},
		"hangs up":     {func(uint32) []byte { return nil }, "closed"},
		"half":         {func(x uint32) []byte { return reply(x, 0, 1)[:10] }, "unexpected EOF"},
		"denied": {func(x uint32) []byte {
			b := reply(x, 5)
			binary.BigEndian.PutUint32(b[12:], 1) // denied
			binary.BigEndian.PutUint32(b[16:], 1) // because of its credential
			binary.BigEndian.PutUint32(b[20:], 5)
			return b
		}, "stronger credential"},
		"two fragments": {func(x uint32) []byte {
			b := reply(x, 0, 42)
			binary.BigEndian.PutUint32(b, 8) // not the last fragment
			rest := binary.BigEndian.AppendUint32(nil, uint32(len(b)-12)|1<<31)
			return append(b[:12:12], append(rest, b[12:]...)...)
		}, ""},
	} {
		c := client(t, serve(t, func(c net.Conn) {
			if xid, _, err := receive(c); err == nil {
				_, _ = c.Write(tt.answer(xid))
			}
		}), Options{})
		v, err := call(t.Context(), c, 1)
		if tt.want == "" && (err != nil || v != 42) || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: got %d, %v; want %q", name, v, err, tt.want)
		}
	}
}

func TestConnectionSilenceTimesOut(t *testing.T) { synctest.Test(t, silentConnection) }

func silentConnection(t *testing.T) {
	var conns atomic.Int32
	c := client(t, pipe(func(c net.Conn) {
		silent := conns.Add(1) == 1
		for {
			xid, arg, err := receive(c)
			if err != nil {
				return
			}
			if !silent {
				_, _ = c.Write(reply(xid, 0, arg))
			}
		}
	}), Options{Silence: 50 * time.Millisecond})
	began := time.Now()
	_, err := call(t.Context(), c, 5)
	var broken *BrokenError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), "did not respond for 50ms") {
		t.Errorf("a silent server: %v", err)
	}
	if took := time.Since(began); took != 50*time.Millisecond {
		t.Errorf("a silent server was given up after %v, want 50ms", took)
	}
	if v, err := call(t.Context(), c, 5); v != 5 || err != nil {
		t.Errorf("on the next connection: %d, %v", v, err)
	}
	time.Sleep(100 * time.Millisecond) // a connection without calls may be silent
	if v, err := call(t.Context(), c, 6); v != 6 || err != nil || conns.Load() != 2 {
		t.Errorf("after an idle time: %d, %v, on connection %d", v, err, conns.Load())
	}
}

func TestCallCanceledStillCompletes(t *testing.T) {
	release := make(chan struct{})
	c := client(t, serve(t, func(c net.Conn) {
		for {
			xid, arg, err := receive(c)
			if err != nil {
				return
			}
			if arg == 1 {
				<-release
			}
			_, _ = c.Write(reply(xid, 0, arg))
		}
	}), Options{})
	ctx, cancel := context.WithCancelCause(t.Context())
	conn, err := c.Conn(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	msg := NewCall(Credential{}, 7, 1, 1, 0)
	msg.Uint32(1)
	under, err := conn.Start(msg)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	cancel(cause)
	if _, err := under.Wait(ctx); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
		t.Errorf("a cancelled wait: %v, want the context's error and its cause", err)
	}
	close(release)
	r, err := under.Wait(t.Context())
	if err != nil || r.Uint32() != 1 {
		t.Errorf("the call itself: %v", err)
	}
}

func TestEncoderAndDecoderAgree(t *testing.T) {
	var e Encoder
	e.Uint32(1)
	e.Opaque([]byte("abcde"))
	e.String("")
	copy(e.Reserve(3), "xyz")
	e.Uint64(1 << 40)
	d := NewDecoder(e.Bytes())
	if d.Uint32() != 1 || string(d.Opaque(5)) != "abcde" || len(d.Opaque(0)) != 0 || string(d.Opaque(9)) != "xyz" || d.Uint64() != 1<<40 || d.Len() != 0 || d.Err() != nil {
		t.Errorf("what was encoded is not decoded: %v, %d bytes left", d.Err(), d.Len())
	}
	d = NewDecoder(e.Bytes()[4:])
	if d.Opaque(4); d.Err() == nil || d.Uint32() != 0 {
		t.Error("an opaque over its limit is no error")
	}
	if got := System("m", 1, 2, make([]uint32, 40)); len(got.body) != 4+8+4+4+4+4*MaxGroups {
		t.Errorf("a credential with 40 groups has %d bytes", len(got.body))
	}
}

func FuzzRecord(f *testing.F) {
	f.Add(reply(1, 0, 2), 0, 0)
	f.Add([]byte{0, 0, 0, 1, 9, 0x80, 0, 0, 0}, 24, 1<<15)
	f.Fuzz(func(t *testing.T, data []byte, at, n int) {
		in := bytes.NewReader(data)
		x := expected{at: at & (1<<31 - 1), n: n & (1<<24 - 1)}
		for {
			r, err := readRecord(in, 1<<16, func(uint32) expected { return x })
			if err != nil {
				return
			}
			record := r.bytes()
			if len(record) > 1<<16 {
				t.Fatalf("a record has %d bytes", len(record))
			}
			if len(record) >= 8 {
				d := NewDecoder(record[8:])
				if accepted(d) == nil && d.Err() != nil {
					t.Error("an answer that is not whole is accepted")
				}
			}
			r.release()
		}
	})
}

var _ io.Reader = (*Decoder)(nil)
