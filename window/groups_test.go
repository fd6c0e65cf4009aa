package window

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// Two groups receive every shard, each in order, and may be as far apart as the window allows. A
// file is removed once both have acknowledged it. After a kill, each group has the leases that it
// had.
func TestGroupsEachGetEveryShard(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(3, 10), Size: 20, Epochs: 1, Groups: 2})
		b.idle()
		a0, a1 := b.must(b.lease("a")), b.must(b.lease("a"))
		if a0.Pos != 0 || a1.Pos != 1 || a0.Attempt != 1 {
			t.Errorf("group 0 got %+v and %+v, want positions 0 and 1", a0, a1)
		}
		b.ok(b.Ack(a0.ID))
		b.ok(b.Ack(a1.ID))
		b.advance(time.Minute)
		if _, err := b.lease("a"); !isWait(err, CauseBudget) {
			t.Errorf("got %v, want to wait for room: the other group has taken nothing", err)
		}
		b0 := b.must(b.lease("b"))
		if b0.Pos != 0 || b0.Path != a0.Path {
			t.Errorf("group 1 got %+v, want the same as group 0", b0)
		}
		b.crash()
		b.idle()
		b.ok(b.Ack(a1.ID)) // again
		if again := b.must(b.lease("b")); again.Pos != 0 || again.Attempt != 2 {
			t.Errorf("who comes back without its lease got %+v, want position 0 again", again)
		} else {
			b.ok(b.Nack(again.ID, "torn"))
		}
		b0 = b.must(b.lease("bb"))
		b.want("ready", "e0000-00000000-s00.tar", "e0000-00000001-s01.tar")
		b.ok(b.Ack(b0.ID))
		b.idle()
		b.want("ready", "e0000-00000001-s01.tar", "e0000-00000002-s02.tar")
		if l := b.must(b.lease("a")); l.Pos != 2 {
			t.Errorf("group 0 got %+v, want position 2", l)
		} else {
			b.ok(b.Ack(l.ID))
		}
		if c := b.Cursor(); len(c.Finished[0]) != 1 || c.Finished[0][0] != (Span{0, 0}) {
			t.Errorf("got the cursor %+v, want position 0 alone, which both have acknowledged", c)
		}
		for pos := 1; pos < 3; pos++ {
			if _, err := b.lease("a"); !isWait(err, CauseReaders) {
				t.Errorf("got %v, want to wait for the other group", err)
			}
			l := b.must(b.lease("b"))
			if l.Pos != pos {
				t.Errorf("group 1 got %+v, want position %d", l, pos)
			}
			b.ok(b.Ack(l.ID))
		}
		b.idle()
		for _, reader := range []string{"a", "b"} {
			if _, err := b.lease(reader); !isEnd(err, 0) {
				t.Errorf("%s got %v, want the end", reader, err)
			}
		}
		if s := b.Status(); !s.Done || s.Used != 0 || s.Peak != 20 || s.Acknowledged != 3 || len(b.report(0)) != 3 {
			t.Errorf("got %+v, want 3 acknowledged, and nothing left", s)
		}
	})
}

func TestGroupOutOfRangeIsRejected(t *testing.T) {
	virtual(t, func(t *testing.T) {
		at := func(group int) *int { return &group }
		for _, tt := range []struct {
			groups int
			group  *int
			words  string
		}{
			{4, at(4), "group=4: input train is broadcast to 4 groups, from 0 to 3"},
			{4, at(-1), "group=-1"},
			{4, nil, "set group, from group=0 to group=3"},
			{1, at(1), "group=1: input train is not broadcast to groups, its readers share it; omit the group"},
			{0, at(0), ""},
		} {
			b := newBench(t, Config{Items: items(1, 10), Size: 20, Epochs: 1, Groups: tt.groups})
			b.idle()
			_, err := b.Lease(t.Context(), LeaseRequest{Reader: "r", Group: tt.group})
			var refused *GroupError
			if tt.words == "" && err == nil || tt.words != "" && errors.As(err, &refused) && strings.Contains(err.Error(), tt.words) {
				continue
			}
			t.Errorf("got %v, want %q", err, tt.words)
		}
		for _, cfg := range []Config{{Groups: -1}, {Groups: 1 << 20}, {Groups: 2, Release: ReleaseUnlink}} {
			cfg.Dir, cfg.Items, cfg.Size, cfg.Fetcher = t.TempDir(), items(1, 10), 10, &fake{}
			if w, err := New(cfg); err == nil {
				w.Close()
				t.Errorf("%d groups with release %s are taken", cfg.Groups, cfg.Release)
			}
		}
	})
}

// A group that requests nothing blocks all others, and the status reports it.
func TestGroupThatNeverReadsIsReported(t *testing.T) {
	virtual(t, func(t *testing.T) {
		b := newBench(t, Config{Items: items(9, 10), Size: 20, Epochs: 1, Groups: 2})
		ctx, cancel := context.WithCancel(t.Context())
		b.start(ctx)
		go func() {
			for ctx.Err() == nil {
				if l, err := b.Lease(ctx, LeaseRequest{Reader: "a", Wait: time.Hour, Bound: true, Group: b.group("a")}); err == nil {
					b.ok(b.Ack(l.ID))
				}
			}
		}()
		time.Sleep(time.Minute)
		if s := b.Status().Starvation; s == nil || !strings.Contains(s.Words, "; group 1 has not requested a shard yet") || strings.Contains(s.Words, "group 0") {
			t.Errorf("got %+v, want to hear of group 1", s)
		}
		cancel()
		time.Sleep(time.Hour)
	})
}

// groupOf returns a reader's group in the model; 0 if there are none.
func (m *model) groupOf(reader string) int {
	if group := m.group(reader); group != nil {
		return *group
	}
	return 0
}

// ackedBy reports whether a group has acknowledged a position.
func (m *model) ackedBy(a seq, group int) bool { return m.acked[a] || m.parts[shareKey{a, group}] }

// ack records an acknowledgement by call.
func (m *model) ack(l Lease) {
	a := seq{l.Epoch, l.Pos}
	m.parts[shareKey{a, m.groupOf(l.Reader)}] = true
	for group := range m.cfg.Groups {
		if !m.parts[shareKey{a, group}] {
			return
		}
	}
	m.acked[a] = true
}
