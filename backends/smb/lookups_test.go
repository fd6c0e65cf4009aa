package smb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"strings"
	"sync"
	"testing"
	"unicode/utf16"

	"github.com/stager-dev/stager/backends"
)

// openLiar opens a directory of the real server through a proxy that spoils lookups.
func openLiar(t *testing.T) (*liar, *backends.Store) {
	t.Helper()
	s := need(t, "plain")
	p := newLiar(t, s.Env["SMB_SERVER"])
	store, err := backends.NewRegistry(Scheme()).Open(t.Context(), "smb://"+p.address+"/data/lookups/?signing=off", backends.Options{Getenv: s.Getenv()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	return p, store
}

// While an object was replaced, a reader was told that it does not exist. Here each lookup of the file
// in turn fails like that, once.
func TestLookupThatFindsNothingIsRepeated(t *testing.T) {
	p, store := openLiar(t)
	old := []byte("old")
	put := func() backends.Object {
		t.Helper()
		obj, err := store.PutBytes(t.Context(), "k", old, backends.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return obj
	}
	put()
	for _, tt := range []struct {
		what string
		call func(obj backends.Object) error
		want error
	}{
		{"stat", func(backends.Object) error {
			_, err := store.Stat(t.Context(), "k")
			return err
		}, nil},
		{"read", func(obj backends.Object) error {
			b, prefix := store.Backend()
			obj.Key = prefix + obj.Key
			body, err := b.OpenRange(t.Context(), obj, 0, obj.Size)
			if err != nil {
				return err
			}
			defer body.Close()
			got, err := io.ReadAll(body)
			if !bytes.Equal(got, old) {
				t.Errorf("read = %q, want %q", got, old)
			}
			return err
		}, nil},
		{"create of a key that exists", func(backends.Object) error {
			_, err := store.PutBytes(t.Context(), "k", []byte("new"), backends.CreateOptions{IfAbsent: true})
			return err
		}, fs.ErrExist},
		{"replacement of a version", func(obj backends.Object) error {
			_, err := store.PutBytes(t.Context(), "k", old, backends.CreateOptions{IfVersion: obj.Version})
			return err
		}, nil},
	} {
		obj := put()
		before := p.opened("k")
		if err := tt.call(obj); !errors.Is(err, tt.want) {
			t.Fatalf("%s = %v, want %v", tt.what, err, tt.want)
		}
		lookups := p.opened("k") - before
		if lookups == 0 {
			t.Errorf("%s opened the file of the key 0 times, want at least once", tt.what)
		}
		for i := range lookups {
			obj := put()
			p.lieAt("k", i)
			if err := tt.call(obj); !errors.Is(err, tt.want) {
				t.Errorf("%s, when lookup %d of %d finds nothing = %v, want %v", tt.what, i+1, lookups, err, tt.want)
			}
		}
	}
	if err := store.Delete(t.Context(), "k"); err != nil {
		t.Error(err)
	}
}

// Jobs look up many keys that do not exist. It takes two requests; one of a file that exists takes three.
func TestMissingKeyTakesTwoLookups(t *testing.T) {
	p, store := openLiar(t)
	if _, err := store.Stat(t.Context(), "nowhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("stat = %v, want fs.ErrNotExist", err)
	}
	if got := p.opened("nowhere"); got != 2 {
		t.Errorf("stat of a missing key opened it %d times, want 2", got)
	}
}

// liar is a proxy of a server that can ask for another file than the client, so that the server does not
// find it. It needs messages without signatures.
type liar struct {
	address string

	mu   sync.Mutex // guards the fields below
	open map[string]int
	lie  map[string]int // how many more opens to pass before the one to spoil
}

func newLiar(t *testing.T, to string) *liar {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	p := &liar{address: l.Addr().String(), open: make(map[string]int), lie: make(map[string]int)}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			go func() {
				defer in.Close()
				defer out.Close()
				_, _ = io.Copy(in, out)
			}()
			go func() {
				defer in.Close()
				defer out.Close()
				p.pass(out, in)
			}()
		}
	}()
	return p
}

// opened returns how often a file of this name was opened.
func (p *liar) opened(base string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[base]
}

// lieAt spoils open i from now of the files of this name.
func (p *liar) lieAt(base string, i int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lie[base] = i + 1
}

// pass passes on the requests of a client.
func (p *liar) pass(to io.Writer, from io.Reader) {
	length := make([]byte, 4)
	for {
		if _, err := io.ReadFull(from, length); err != nil {
			return
		}
		message := make([]byte, binary.BigEndian.Uint32(length))
		if _, err := io.ReadFull(from, message); err != nil {
			return
		}
		p.look(message)
		if _, err := to.Write(append(length[:4:4], message...)); err != nil {
			return
		}
	}
}

// look counts a request to open a file, and spoils it if that is wanted. See MS-SMB2 2.2.13.
func (p *liar) look(message []byte) {
	const create, nameAt = 5, smbHeader + 44
	if len(message) < nameAt+4 || string(message[:4]) != "\xfeSMB" || binary.LittleEndian.Uint16(message[12:]) != create {
		return
	}
	at, size := int(binary.LittleEndian.Uint16(message[nameAt:])), int(binary.LittleEndian.Uint16(message[nameAt+2:]))
	if size == 0 || at+size > len(message) {
		return
	}
	name := make([]uint16, size/2)
	for i := range name {
		name[i] = binary.LittleEndian.Uint16(message[at+2*i:])
	}
	base := string(utf16.Decode(name))
	base = base[strings.LastIndexByte(base, '\\')+1:]
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open[base]++
	if p.lie[base] == 0 {
		return
	}
	if p.lie[base]--; p.lie[base] == 0 {
		binary.LittleEndian.PutUint16(message[at+size-2:], '-')
	}
}
