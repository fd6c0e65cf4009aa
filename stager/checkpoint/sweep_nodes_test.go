package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/group"
)

// nodeRecords returns the keys below nodes/.
func nodeRecords(b *mem.Backend) []string {
	return slices.DeleteFunc(b.Keys(), func(key string) bool { return !strings.HasPrefix(key, group.RecordsPrefix) })
}

// announce writes an announcement of a view, like a member of it.
func announce(t *testing.T, b *mem.Backend, view string, save int) (key string) {
	t.Helper()
	a := group.Announcement{
		Header: group.Header{APIVersion: apiVersion, Kind: "Announcement"}, View: view, Save: save, Step: 900, Writing: 1, Scope: group.ScopeNode,
	}
	text, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	key = fmt.Sprintf("%s%s/%08d.json", group.ViewsPrefix, view, save)
	b.Put(key, text)
	return key
}

// Records of former views and members stayed forever. Each start of a job with other pods left
// some, and each node that registers reads all member records.
func TestRecordsOfFormerNodesAreSwept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		g := savedGang(t, b, 3)
		committed := viewOf(t, b).Digest // of step 1
		for n := range g.us {
			g.kill(n)
		}
		// Two nodes continue. The view of three is the one before theirs.
		g.dirs, g.us, g.stop = g.dirs[:2], g.us[:2], g.stop[:2]
		for n := range g.us {
			g.startAs(n, n, 2)
		}
		time.Sleep(time.Minute)

		gone, named := strings.Repeat("a", 32), strings.Repeat("b", 32)
		old := []string{announce(t, b, gone, 1), announce(t, b, gone, 2)}
		kept := []string{announce(t, b, committed, 9), announce(t, b, named, 1), "nodes/members/000000.json", "nodes/members/000001.json", group.ViewKey}
		b.Put("step-00000901/parts/"+named+"/00000001/000000.json", []byte("{}")) // its state is unknown
		for key, text := range map[string]string{
			"nodes/views/" + gone + "/00000003.json":      "cut sh",
			"nodes/views/" + gone + "/4.json":             `{"a name":"that no stager writes"}`,
			"nodes/views/" + gone + "/notes.txt":          "a user's",
			"nodes/restores/" + gone + "/000001.json":     `{"requires":["what is not known"]}`,
			"nodes/views/" + committed[:31] + "/0001.txt": "x",
			"nodes/README": "a user's",
		} {
			b.Put(key, []byte(text))
			kept = append(kept, key)
		}

		g.save("2")
		g.waitFor(2)
		if got := nodeRecords(b); !slices.Contains(got, old[0]) || !slices.Contains(got, "nodes/members/000002.json") {
			t.Errorf("young records: got %q, want all", got)
		}
		for n := range g.us {
			g.kill(n)
		}
		time.Sleep(Abandoned)
		for n := range g.us {
			g.startAs(n, n, 2)
		}
		time.Sleep(sweepNodesEvery + time.Minute) // both found step 2 safe, and swept then
		young := announce(t, b, strings.Repeat("c", 32), 1)
		g.save("3")
		g.waitFor(3)
		got := nodeRecords(b)
		for _, key := range append(old, "nodes/members/000002.json") {
			if slices.Contains(got, key) {
				t.Errorf("%s is there after %v, want it removed", key, Abandoned)
			}
		}
		for _, key := range append(kept, young) {
			if !slices.Contains(got, key) {
				t.Errorf("%s was removed, want it kept", key)
			}
		}
		g.save("4")
		g.waitFor(4)
		_, files := restoreNewest(t, b)
		equal(t, "step 4", files, together(2, "4"))
	})
}

// A COMMIT that cannot be read may name anything, and a view that cannot be read may need
// anything.
func TestRecordsStayWhileSomethingCannotBeRead(t *testing.T) {
	for key, text := range map[string]string{
		"step-00000000/" + commitKey: `{"apiVersion":"stager.dev/v1alpha1","kind":"Checkpoint","requires":["later"]}`,
		group.ViewKey:                "{",
	} {
		inBubble(t, func(t *testing.T) {
			b := mem.New()
			g := startGang(t, b, "job-a", 2)
			time.Sleep(time.Minute)
			g.save("1")
			g.waitFor(1)
			old := announce(t, b, strings.Repeat("a", 32), 1)
			b.Put(key, []byte(text))
			for n := range g.us {
				g.kill(n)
			}
			time.Sleep(Abandoned + time.Hour)
			if _, err := Prune(t.Context(), PruneConfig{Store: newStore(b), Abandoned: Abandoned}); err != nil {
				t.Fatal(err)
			}
			if now := nodeRecords(b); !slices.Contains(now, old) {
				t.Errorf("with an unreadable %s: got %q, want %s kept", key, now, old)
			}
		})
	}
}

func TestPruneRemovesRecordsOfFormerNodes(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		b := mem.New()
		savedGang(t, b, 2)
		old := announce(t, b, strings.Repeat("a", 32), 1)
		for _, dry := range []bool{true, false} {
			gone, err := Prune(t.Context(), PruneConfig{Store: newStore(b), DryRun: dry})
			if err != nil {
				t.Fatal(err)
			}
			if len(gone) != 1 || gone[0].Dir != "nodes" || gone[0].Objects != 1 {
				t.Errorf("dry %v: got %+v, want one record below nodes", dry, gone)
			}
			if got := slices.Contains(b.Keys(), old); got != dry {
				t.Errorf("dry %v: the record is there: %v, want %v", dry, got, dry)
			}
		}
	})
}
