package checkpoint

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// Records at the destination that are not as this stager writes them: cut short, forged,
// of a later version, of another clock.

// viewOf reads the current view.
func viewOf(t *testing.T, b *mem.Backend) group.View {
	t.Helper()
	text, _ := b.Get(group.ViewKey)
	view, err := group.DecodeView(text)
	if err != nil {
		t.Fatal(err)
	}
	return view
}

// forgePart writes a part of node 1 with a payload.
func forgePart(t *testing.T, b *mem.Backend, step int64, payload string) string {
	t.Helper()
	view := viewOf(t, b)
	p := group.Part{
		Header: group.Header{APIVersion: apiVersion, Kind: "Part"}, View: view.Digest, Save: 1, Step: step,
		Index: 1, Count: view.Count, Boot: view.Boots[1], Payload: json.RawMessage(payload),
	}
	text, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	key := group.PartKey(step, group.SaveID{View: view.Digest, Number: 1}, 1)
	b.Put(key, text)
	return key
}

// A COMMIT.json that failed its own check was tried again each two seconds for ever, and
// no later step was saved.
func TestSaveWithoutValidCommitIsGivenUp(t *testing.T) {
	for _, tt := range []struct{ what, payload, want string }{
		{"a path that leads out", `{"data":"data/` + strings.Repeat("1", 16) + `","files":[{"path":"../x","size":1,"digest":"crc64nvme:0123456789abcdef"}]}`, `"../x"`},
		{"another kind of payload", `[1]`, "cannot unmarshal"},
	} {
		t.Run(tt.what, func(t *testing.T) {
			inBubble(t, func(t *testing.T) { testInvalidCommit(t, tt.payload, tt.want) })
		})
	}
}

func testInvalidCommit(t *testing.T, payload, want string) {
	b := mem.New()
	g := startGang(t, b, "job-a", 2)
	time.Sleep(time.Minute)
	g.kill(1)
	forged := forgePart(t, b, 1, payload)
	g.saveOn(0, g.dirs[0], "1")
	time.Sleep(time.Minute)
	f := g.us[0].Status().Failed
	if len(f) != 1 || f[0].Step != 1 || !strings.Contains(f[0].Reason, "its parts make no valid COMMIT.json: ") || !strings.Contains(f[0].Reason, want) {
		t.Fatalf("got failed %+v, want step 1 with %s", f, want)
	}
	data := slices.ContainsFunc(b.Keys(), func(key string) bool { return strings.HasSuffix(key, "/rank0.pt") })
	if _, there := b.Get(forged); !there || !data || len(commits(b)) > 0 {
		t.Errorf("the destination has %q, want all parts and data, and no COMMIT", b.Keys())
	}
	// The next step is saved, and the end names the one that is not.
	g.start(1)
	time.Sleep(time.Minute)
	g.save("2")
	g.waitFor(2)
	_, files := restoreNewest(t, b)
	equal(t, "step 2", files, together(2, "2"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err := g.us[0].Drain(ctx, Exit{Success: true, Gone: true})
	if !strings.Contains(fmt.Sprint(err), "is held in") || !strings.Contains(fmt.Sprint(err), "its parts make no valid COMMIT.json") {
		t.Errorf("the end: got %v, want that step 1 is held", err)
	}
}
