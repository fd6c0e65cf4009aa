package stager

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

// A trainer rewinds to a checkpoint, after the last epoch or in the middle, while its readers wait.
// They get the shards after the checkpoint from the window that replaces the previous one.
func TestInputContinuesAtACursor(t *testing.T) {
	j := newJob(t, "  inputs:\n"+windowInput)
	j.start()
	j.ready()
	const path = "/v1/inputs/train/cursor"
	j.ack(j.lease())
	_, at := j.call("GET", path, "")
	rest := []api.LeaseResponse{j.lease(), j.lease(), j.lease()}
	waits := make(chan api.LeaseResponse)
	go func() { waits <- j.lease() }()
	j.await("a reader waits", func() bool { return j.Snapshot().Inputs[0].Window.Waiting == 1 })
	if code, now := j.call("PUT", path, at); code != 200 || settled(t, now) != settled(t, at) {
		t.Errorf("got %d %s, want %s, and maybe a lease of the reader that waits", code, now, at)
	}
	if code, _ := j.call("POST", "/v1/leases/"+rest[2].Lease+"/ack", ""); code != 410 {
		t.Errorf("a lease of before is acknowledged with %d, want 410", code)
	}
	l := <-waits
	for _, want := range []int{1, 2, 3} {
		if l.Pos != want || l.Attempt != 1 {
			t.Errorf("got %+v, want position %d as if for the first time", l, want)
		}
		j.ack(l)
		l = j.lease()
	}
	if !l.End {
		t.Errorf("got %+v, want the end", l)
	}
	j.await("the window is done", func() bool { return j.Snapshot().Inputs[0].Window.Done })
	if code, now := j.call("PUT", path, "["+at+"]"); code != 200 || now != at {
		t.Errorf("after the last epoch got %d %s, want %s", code, now, at)
	}
	if l := j.lease(); l.Pos != 1 {
		t.Errorf("got %+v, want position 1", l)
	}
	var c window.Cursor
	if err := json.Unmarshal([]byte(at), &c); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]struct {
		code  int
		words string
	}{
		strings.Replace(at, c.Manifest, "abc", 1):  {422, "another manifest"},
		strings.Replace(at, `"0/1"`, `"0/2"`, 1):   {422, "the cursors do not cover this node's part 0/1: they have 0/2"},
		"[" + at + "," + at + "]":                  {422, "two cursors cover the same positions"},
		strings.Replace(at, `"0/1"`, `"first"`, 1): {422, "a cursor's part"},
		"[]": {400, "the list is empty"},
		"{":  {400, "the body must be a cursor as returned by GET"},
		strings.Replace(at, `"epoch"`, `"epochs"`, 1): {400, "epochs"},
	} {
		if code, answer := j.call("PUT", path, body); code != want.code || !strings.Contains(answer, want.words) {
			t.Errorf("%s: got %d %s, want %d with %q", body, code, answer, want.code, want.words)
		}
	}
	if code, _ := j.call("PUT", "/v1/inputs/val/cursor", at); code != 404 {
		t.Errorf("an unknown input is %d, want 404", code)
	}
	if err := j.finish(); err != nil {
		t.Error(err)
	}
}

// settled is a cursor without its leases, as JSON.
func settled(t *testing.T, cursor string) string {
	t.Helper()
	var c window.Cursor
	if err := json.Unmarshal([]byte(cursor), &c); err != nil {
		t.Fatal(err)
	}
	c.Leased = nil
	text, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestCursorsOfAllNodesAreNeeded(t *testing.T) {
	of := func(parts ...string) (cursors []window.Cursor) {
		for _, p := range parts {
			cursors = append(cursors, window.Cursor{Part: p})
		}
		return cursors
	}
	for _, tt := range []struct {
		own     plan.Shard
		cursors []window.Cursor
		ok      bool
	}{
		{plan.Shard{Index: 1, Count: 3}, of("0/2", "1/2"), true},
		{plan.Shard{Index: 1, Count: 3}, of("0/2"), false},
		{plan.Shard{Index: 1, Count: 4}, of("1/2"), true}, // which covers all of it
		{plan.Shard{Index: 1, Count: 4}, of("1/4"), true},
		{plan.Shard{Index: 1, Count: 4}, of("1/8"), false},
		{plan.Shard{}, of("0/1"), true},
		{plan.Shard{}, of("0/1", "0/2"), false},
	} {
		whose, err := stripesOf(tt.own, tt.cursors)
		var refused *window.CursorError
		if (err == nil) != tt.ok || err != nil && !errors.As(err, &refused) {
			t.Errorf("%v of %v: got %v, want it taken: %t", tt.own, tt.cursors, err, tt.ok)
		}
		for stripe, i := range whose {
			if tt.ok && tt.own.Owns(stripe) && i < 0 {
				t.Errorf("%v of %v: nobody speaks of stripe %d", tt.own, tt.cursors, stripe)
			}
		}
	}
}
