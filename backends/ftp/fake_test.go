package ftp

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
)

// began is the time of all files of a fake.
var began = time.Date(2026, 11, 26, 18, 0, 0, 0, time.UTC)

// way is how a fake behaves. The zero value is a server without faults that knows LIST alone.
type way struct {
	MLSD     bool              // knows MLSD
	Greeting string            // instead of 220
	Replies  map[string]string // by the verb of a command, instead of carrying it out
	Listing  string            // instead of that of the files
	Most     int               // connections that it accepts
	Cut      int               // of the next transfer: close everything after so many bytes
	ASCII    bool              // converts the ends of lines
}

// fake is an FTP server of the tests.
type fake struct {
	address string

	mu       sync.Mutex // guards the fields below
	way      way
	files    map[string][]byte // by path, such as /data/a
	at       time.Time
	conns    int
	commands []string
}

func start(t *testing.T, w way, files map[string][]byte) *fake {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{address: listener.Addr().String(), way: w, files: files, at: began}
	var sessions sync.WaitGroup
	sessions.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				defer conn.Close()
				(&session{f: f, conn: conn}).serve()
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		sessions.Wait()
	})
	return f
}

func (f *fake) set(change func(*way)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.way)
}

func (f *fake) get() way {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.way
}

// sent returns how often a command with this verb came.
func (f *fake) sent(verb string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.commands {
		if word, _, _ := strings.Cut(c, " "); word == verb {
			n++
		}
	}
	return n
}

func (f *fake) open(t *testing.T, params string, opts backends.Options) (*backends.Store, error) {
	t.Helper()
	if opts.RetryFor == 0 {
		opts.RetryFor = 20 * time.Second
	}
	store, err := backends.NewRegistry(Schemes()...).Open(t.Context(), "ftp://"+f.address+"/data/"+params, opts)
	if err == nil {
		t.Cleanup(func() { store.Close() })
	}
	return store, err
}

func (f *fake) mustOpen(t *testing.T) *backends.Store {
	t.Helper()
	store, err := f.open(t, "", backends.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// session is one control connection.
type session struct {
	f        *fake
	conn     net.Conn
	passive  net.Listener
	dir      string
	from     int
	finished bool
}

func (s *session) say(format string, args ...any) { fmt.Fprintf(s.conn, format+"\r\n", args...) }

func (s *session) serve() {
	f := s.f
	f.mu.Lock()
	f.conns++
	busy, w := f.way.Most > 0 && f.conns > f.way.Most, f.way
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.conns--
	}()
	switch {
	case busy:
		s.say("421 There are too many connections from your internet address.")
		return
	case w.Greeting != "":
		s.say("%s", w.Greeting)
	default:
		s.say("220 ready")
	}
	for in := bufio.NewScanner(s.conn); !s.finished && in.Scan(); {
		verb, arg, _ := strings.Cut(in.Text(), " ")
		f.mu.Lock()
		f.commands = append(f.commands, in.Text())
		r, scripted := f.way.Replies[verb]
		f.mu.Unlock()
		if scripted {
			s.say("%s", r)
			continue
		}
		s.command(verb, arg)
	}
	if s.passive != nil {
		s.passive.Close()
	}
}

func (s *session) command(verb, arg string) {
	w := s.f.get()
	switch verb {
	case "USER":
		s.say("331 password, please")
	case "PASS":
		s.say("230 logged in")
	case "FEAT":
		if w.MLSD {
			s.say("211-Features:\r\n MLST type*;size*;modify*;\r\n UTF8\r\n211 End")
		} else {
			s.say("502 no")
		}
	case "PWD":
		s.say("257 \"%s\" is it", strings.ReplaceAll(path.Join("/", s.dir), `"`, `""`))
	case "CWD":
		if s.f.isDir(arg) {
			s.dir = arg
			s.say("250 done")
		} else {
			s.say("550 no")
		}
	case "EPSV", "PASV":
		s.listen(verb)
	case "SIZE", "MDTM":
		s.attribute(verb, arg)
	case "REST":
		s.from, _ = strconv.Atoi(arg) // the tests send numbers
		s.say("350 from there")
	case "MLSD", "LIST":
		s.send([]byte(s.f.listing(verb, s.dir)), false)
	case "RETR":
		contents, ok := s.f.file(arg)
		if !ok {
			s.say("550 no such file")
			return
		}
		from := min(s.from, len(contents))
		s.from = 0
		s.send(contents[from:], true)
	default:
		s.say("200 fine")
	}
}

func (s *session) listen(verb string) {
	if s.passive != nil {
		s.passive.Close()
	}
	var err error
	if s.passive, err = new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0"); err != nil {
		s.say("425 %v", err)
		return
	}
	port := s.passive.Addr().(*net.TCPAddr).Port //nolint:forcetypeassert // it listens on TCP
	if verb == "EPSV" {
		s.say("229 Entering (|||%d|)", port)
	} else { // the address of somebody else, which must be ignored
		s.say("227 Entering (192,0,2,1,%d,%d)", port>>8, port&255)
	}
}

func (s *session) attribute(verb, name string) {
	contents, ok := s.f.file(name)
	switch {
	case !ok:
		s.say("550 no such file")
	case verb == "SIZE":
		s.say("213 %d", len(contents))
	default:
		s.f.mu.Lock()
		defer s.f.mu.Unlock()
		s.say("213 %s", s.f.at.Format("20060102150405"))
	}
}

// send transfers bytes over a data connection.
func (s *session) send(contents []byte, file bool) {
	s.say("150 here it comes")
	conn, err := s.passive.Accept()
	if err != nil {
		s.say("425 %v", err)
		return
	}
	defer conn.Close()
	cut := 0
	if file {
		s.f.set(func(w *way) { cut, w.Cut = w.Cut, 0 })
		if s.f.get().ASCII {
			contents = bytes.ReplaceAll(contents, []byte("\n"), []byte("\r\n"))
		}
	}
	if cut > 0 {
		contents = contents[:min(cut, len(contents))]
	}
	_, err = conn.Write(contents)
	conn.Close()
	switch {
	case cut > 0:
		s.finished = true
	case err != nil:
		s.say("426 you have left")
	default:
		s.say("226 done")
	}
}

func (f *fake) file(name string) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	contents, ok := f.files[name]
	return contents, ok
}

func (f *fake) isDir(dir string) bool {
	return dir == "/" || len(f.names(strings.TrimSuffix(dir, "/"))) > 0
}

// names returns what is in a directory; directories end in "/".
func (f *fake) names(dir string) (names []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for name := range f.files {
		if rest, ok := strings.CutPrefix(name, strings.TrimSuffix(dir, "/")+"/"); ok {
			first, _, isDir := strings.Cut(rest, "/")
			if isDir {
				first += "/"
			}
			names = append(names, first)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (f *fake) listing(verb, dir string) string {
	if raw := f.get().Listing; raw != "" {
		return raw
	}
	var out strings.Builder
	for _, name := range f.names(dir) {
		contents, _ := f.file(strings.TrimSuffix(dir, "/") + "/" + name)
		of, isDir := strings.CutSuffix(name, "/")
		switch {
		case verb == "MLSD" && isDir:
			fmt.Fprintf(&out, "type=dir;modify=20260101000000; %s\r\n", of)
		case verb == "MLSD":
			fmt.Fprintf(&out, "Type=file;Size=%d;Modify=%s; %s\r\n", len(contents), f.at.Format("20060102150405"), of)
		case isDir:
			fmt.Fprintf(&out, "drwxr-xr-x    2 0        0            4096 Jan 01  2026 %s\r\n", of)
		default:
			fmt.Fprintf(&out, "-rw-r--r--    1 0        0       %9d Nov 26 18:00 %s\r\n", len(contents), of)
		}
	}
	return out.String()
}
