package window

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
)

func (b *bench) at(parts ...string) string {
	return filepath.Join(append([]string{b.dir}, parts...)...)
}

func (b *bench) rename(from, to string) {
	b.t.Helper()
	b.ok(os.MkdirAll(filepath.Dir(b.at(to)), 0o777))
	b.ok(os.Rename(b.at(from), b.at(to)))
}

const (
	first  = "e0000-00000000-s00.tar"
	second = "e0000-00000001-s01.tar"
	third  = "e0000-00000002-s02.tar"
)

func TestFileProtocolAcknowledges(t *testing.T) {
	for _, release := range []Release{ReleaseLease, ReleaseUnlink} {
		for _, restart := range []bool{false, true} {
			virtual(t, func(t *testing.T) {
				b := newBench(t, Config{Items: items(4, 10), Size: 40, Epochs: 1, Release: release})
				b.idle()
				b.ok(os.Remove(b.at("ready", first)))
				b.rename("ready/"+second, "done/"+second)
				b.rename("ready/"+third, "claimed/r3/mine.tar")
				if restart {
					b.crash()
				}
				b.idle()
				s := b.Status()
				if s.Acknowledged != 2 || s.Items[Leased] != 1 || s.Used != 20 || s.Readers[0].ID != "r3" || s.Readers[0].Held != 1 {
					t.Errorf("restart %v: got %+v, want 2 acknowledged, r3 to hold 1", restart, s)
				}
				b.want("done")
				b.want("claimed/r3", "mine.tar")

				b.rename("claimed/r3/mine.tar", "ready/"+third) // put back
				b.idle()
				if s := b.Status(); s.Items[Ready] != 2 || s.Items[Leased] != 0 || s.Readers[0].Held != 0 {
					t.Errorf("restart %v: got %+v, want it ready again", restart, s)
				}
				b.rename("ready/"+third, "claimed/r4/"+third)
				b.idle()
				b.rename("claimed/r4/"+third, "done/"+third)
				b.ok(os.Remove(b.at("ready", "e0000-00000003-s03.tar")))
				b.idle()
				if s := b.Status(); !s.Done || s.Used != 0 {
					t.Errorf("restart %v: got %+v, want all done", restart, s)
				}
				b.want("ready", "e0000.END")
				b.want(".stager/held", "e0000.END")
			})
		}
	}
}

func TestLeaseSkipsFilesClaimedByFileProtocol(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(4, 10), Size: 40, Epochs: 1})
		b.idle()
		b.ok(os.Remove(b.at("ready", first)))
		b.rename("ready/"+second, "claimed/r/"+second)
		if l := b.must(b.lease("a")); l.Pos != 2 { // no scan has happened since
			t.Errorf("got position %d, want 2", l.Pos)
		}
		b.idle()
		b.ok(os.Remove(b.at("claimed/r", second)))
		b.ok(os.Remove(b.at("ready", third))) // by the reader that leased it
		b.idle()
		if s := b.Status(); s.Acknowledged != 3 || s.Items[Leased] != 0 || s.Delivered != 2 {
			t.Errorf("got %+v, want 3 acknowledged", s)
		}
	})
}

func TestLeaseIsRejectedWithFileRelease(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(1, 10), Size: 40, Release: ReleaseUnlink})
		b.idle()
		var no *ReleaseError
		if _, err := b.lease("a"); !errors.As(err, &no) {
			t.Errorf("got %v, want a ReleaseError", err)
		}
	})
}

func TestForeignFilesAreIgnored(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(2, 10), Size: 10, Epochs: 1})
		foreign := []string{"ready/README", "ready/" + second, "done/notes", "claimed/r/own"}
		b.ok(os.MkdirAll(b.at("claimed/r"), 0o777))
		for _, name := range foreign {
			b.ok(os.WriteFile(b.at(name), []byte("mine"), 0o644))
		}
		b.idle()
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		b.idle()
		if s := b.Status(); s.LastError == "" || !slices.Equal(s.Strangers, []string{"README", second}) {
			t.Errorf("got %+v, want to be told of what stands in the way", s)
		}
		b.crash()
		b.idle()
		for _, name := range foreign {
			if data, err := os.ReadFile(b.at(name)); string(data) != "mine" {
				t.Errorf("%s holds %q (%v)", name, data, err)
			}
		}
		b.ok(os.Remove(b.at("ready", second)))
		b.advance(lookEvery)
		b.ok(b.Ack(b.must(b.lease("a")).ID))
		b.idle()
		if _, err := b.lease("a"); !isEnd(err, 0) {
			t.Errorf("got %v, want the end", err)
		}
	})
}

func TestOpenFilesStayCounted(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1})
		if !b.stage.seesOpen {
			live.Require(t, "leases", errors.New("this file system does not report open files"))
		}
		b.idle()
		l := b.must(b.lease("r"))
		open, err := os.Open(l.Path)
		b.ok(err)
		b.ok(b.Ack(l.ID))
		b.idle()
		b.want("ready", second)
		if s := b.Status(); s.Bytes[Zombie] != 10 || s.Used != 20 {
			t.Errorf("got %+v, want its bytes counted", s)
		}
		b.crash()
		b.idle()
		b.want("ready", second)
		if s := b.Status(); s.Bytes[Zombie] != 10 || s.Used != 20 {
			t.Errorf("after a restart got %+v, want its bytes counted", s)
		}
		if data := make([]byte, 10); true {
			if _, err := open.Read(data); err != nil || string(data) != "aaaaaaaaaa" {
				t.Errorf("read %q (%v)", data, err)
			}
		}
		b.ok(open.Close())
		b.advance(lookEvery)
		b.idle()
		b.want("ready", second, third)
		b.want(".stager/pending")
		if s := b.Status(); s.Bytes[Zombie] != 0 || s.Peak != 20 {
			t.Errorf("got %+v, want its room used", s)
		}
	})
}

func TestInotifyEventsAreHandled(t *testing.T) {
	b := newBench(t, Config{Items: items(2, 10), Size: 20, Epochs: 1})
	b.spawn = nil
	done := make(chan error)
	go func() { done <- b.Run(t.Context()) }()
	for _, name := range []string{first, second} {
		for {
			if err := os.Remove(b.at("ready", name)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	b.want("ready", "e0000.END")
}
