package stager

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/api"
	"github.com/stager-dev/stager/window"
)

// beginEvents are what may happen, in any state.
var beginEvents = map[string]func(s *scene){
	"kill": func(s *scene) {
		s.kill(false)
		s.again()
		if s.state != beforePages {
			s.next(3, 5) // the held one has no reader
			s.held = nil
		}
	},
	"kill after the directory was named": func(s *scene) {
		if s.state != continuing {
			return // as above
		}
		s.kill(true)
		s.again() // with the list of the process before
		s.next(3, 5)
		s.held = nil
	},
	"kill and another list": func(s *scene) {
		s.kill(false)
		s.mem.Put("many/000350-.tar", []byte("new"))
		s.remove(manyKey(399))
		s.pages.allow(-1)
		s.opened()
		s.await("listed", func() bool { w := s.Snapshot().Inputs[0].Window; return w != nil && !w.Beginning })
		if s.state == continuing || s.state == withWhole { // the list of the process before is another
			s.await("opened again", func() bool {
				in := s.inputs[0]
				in.mu.Lock()
				defer in.mu.Unlock()
				return in.window != nil && in.check == nil
			})
			clear(s.acked)
		}
		s.held = nil
	},
	"kill after the directory was named and another list": func(s *scene) {
		if s.state != continuing {
			return
		}
		s.next(4, 2*pageSize-1)
		s.kill(true)
		s.mem.Put("many/000350-.tar", []byte("new"))
		s.remove(manyKey(399))
		if err := os.Remove(s.list()); err != nil {
			s.t.Fatal(err)
		}
		s.pages.allow(-1)
		s.opened()
		clear(s.acked)
		s.held = nil
	},
	"drain": func(s *scene) {
		s.over()
		s.again()
		if s.state != beforePages {
			s.next(4, 6) // a reader holds position 3
		}
	},
	"drain while a request waits": func(s *scene) {
		if s.state == beforePages || s.state == withWhole {
			return // none waits
		}
		s.send("GET", "/v1/inputs/train/cursor", "")
		s.want("GET", "/v1/inputs/train/cursor?wait=20ms", "", 503, "is still being listed")
		s.want("POST", "/v1/drain", "", 202, "")
		s.replied("GET", 503, "")
		s.over()
		s.again()
	},
	"the listing fails": func(s *scene) {
		s.pages.fail(backends.Errorf(backends.Permission, "list", "many/", "no more pages"))
		if s.state == continuing || s.state == withWhole { // it has ended
			s.next(4, 4)
			s.pages.fail(nil)
			return
		}
		s.await("failed", func() bool { return s.Snapshot().Inputs[0].Error != "" })
		if s.state == atBeginning { // otherwise the job ends, because it never began
			s.want("POST", "/v1/inputs/train/lease?wait=1m", "", 500, "no more pages")
			s.want("GET", "/v1/inputs/train/cursor", "", 500, "no more pages")
		}
		if err := s.finish(); backends.KindOf(err) != backends.Permission {
			s.t.Errorf("%s: got %v, want the error of the listing", s.state, err)
		}
		s.Daemon = nil
		s.pages.fail(nil)
		s.again()
	},
	"the list is complete": func(s *scene) {
		s.unblock()
		s.listed()
		if s.state == beforePages {
			s.next(0, 4)
		} else {
			s.next(4, 2*pageSize+1)
		}
	},
	"leases of all": func(s *scene) {
		switch s.state {
		case beforePages:
			s.want("POST", "/v1/inputs/train/lease?wait=50ms", "", 204, "")
			return
		case withWhole:
			s.next(4, 4*pageSize-1)
			s.want("POST", "/v1/inputs/train/lease?wait=50ms", "", 204, "") // one is held
			return
		}
		s.next(4, 2*pageSize-1)
		s.done(s.held[0])
		s.held = nil
		for _, end := range []string{"all", "early"} {
			s.want("POST", "/v1/inputs/train/lease?wait=50ms&end="+end, "", 204, "")
		}
		if w := s.Snapshot().Inputs[0].Window; w.Done || w.Epoch != 0 || w.Finished != 2*pageSize {
			s.t.Errorf("%s: got %+v, want no end", s.state, w)
		}
	},
	"an acknowledgement": func(s *scene) {
		if s.state == beforePages {
			s.want("POST", "/v1/leases/abc/ack", "", 503, "")
			return
		}
		l := s.held[0]
		s.done(l)
		s.held = nil
		s.unblock()
		s.listed()
		s.want("POST", "/v1/leases/"+l.Lease+"/ack", "", 204, "") // again: its response was lost
	},
	"a refusal": func(s *scene) {
		if s.state == beforePages {
			return
		}
		s.want("POST", "/v1/leases/"+s.held[0].Lease+"/nack?reason=no", "", 204, "")
		if l := s.lease(); l.Pos != 3 || l.Attempt != 2 {
			s.t.Errorf("%s: got %+v, want position 3 again", s.state, l)
		} else {
			s.done(l)
		}
		s.held = nil
	},
	"GET of the cursor": func(s *scene) {
		const path = "/v1/inputs/train/cursor"
		switch s.state {
		case beforePages:
			for _, query := range []string{"", "?wait=0s", "?beginning=true"} {
				s.want("GET", path+query, "", 503, "still being opened")
			}
			return
		case withWhole:
			for _, query := range []string{"", "?wait=0s", "?beginning=true"} {
				if text := s.want("GET", path+query, "", 200, `"settled":{"0":[[0,2]]},"leased":[3]`); strings.Contains(text, "first-") {
					s.t.Errorf("%s: got %s, want a cursor of the whole list", s.state, text)
				}
			}
			return
		}
		s.want("GET", path+"?wait=0s", "", 503, "is still being listed")
		s.want("GET", path+"?beginning=true", "", 200, `{"manifest":"first-200-`)
		s.send("GET", path, "")
		s.next(4, 5)
		s.unblock()
		s.listed()
		s.replied("GET", 200, `"settled":{"0":[[0,2],[4,5]]}`)
	},
	"PUT of a cursor": func(s *scene) {
		const path = "/v1/inputs/train/cursor"
		first := s.want("GET", path+"?beginning=true", "", map[bool]int{true: 503, false: 200}[s.state == beforePages], "")
		switch s.state {
		case beforePages:
			s.want("PUT", path, `{"manifest":"m","part":"0/1","epoch":0}`, 503, "still being opened")
			return
		case withWhole:
			s.next(4, 5)
			s.want("PUT", path, first, 200, `"settled":{"0":[[0,2]]}`)
		default:
			s.want("PUT", path+"?wait=0s", first, 503, "is still being listed")
			if _, err := s.rewind(s.t.Context(), "train", []window.Cursor{{}}); !errors.Is(err, api.ErrListing) {
				s.t.Errorf("%s: got %v, want ErrListing", s.state, err)
			}
			s.send("PUT", path, first)
			s.next(4, 5)
			s.unblock()
			s.pages.allow(-1)
			s.replied("PUT", 200, `"settled":{"0":[[0,2]]}`)
		}
		delete(s.acked, 4)
		delete(s.acked, 5)
		s.held = nil
		s.next(3, 6)
	},
	"PUT of another cursor": func(s *scene) {
		if s.state == beforePages {
			return // as above
		}
		const path = "/v1/inputs/train/cursor"
		first := s.want("GET", path+"?beginning=true", "", 200, "")
		behind := fmt.Sprintf(`"settled":{"0":[[0,%d]]}`, 2*pageSize)
		s.unblock()
		s.listed()
		s.want("PUT", path, strings.Replace(first, `"manifest":"`, `"manifest":"first-200-0`, 1), 422, "another manifest")
		if s.state != withWhole {
			s.want("PUT", path, strings.Replace(first, `"settled":{"0":[[0,2]]}`, behind, 1), 422, "has others")
		}
		s.next(4, 5)
	},
	"a checkpoint": func(s *scene) {
		s.commit()
		s.await("the checkpoint is saved or waits", func() bool { return s.saved(1) || s.said.has(waitsForList) })
		if s.state == beforePages {
			s.await("saved", func() bool { return s.saved(1) })
			if len(s.committed()) > 0 || !s.said.has("because the input was not open yet") {
				s.t.Errorf("%s: got the cursors %+v, want none, and a warning", s.state, s.committed())
			}
			return
		}
		if waits := s.said.has(waitsForList); waits != (s.state == atBeginning) {
			s.t.Errorf("%s: the checkpoint waits for the list: %t", s.state, waits)
		}
		s.next(4, 5)
		s.unblock()
		s.listed()
		s.await("saved", func() bool { return s.saved(1) })
		c := s.committed()
		if plan := s.Snapshot().Inputs[0].Window.Plan; len(c) != 1 || !strings.HasPrefix(plan, c[0].Manifest+" ") || fmt.Sprint(c[0].Finished[0]) != "[[0 2]]" {
			s.t.Errorf("%s: got the cursors %+v, want positions 0 to 2 of %s", s.state, c, plan)
		}
	},
	"a drain with a checkpoint": func(s *scene) {
		s.commit()
		s.over()
		if !s.saved(1) {
			s.t.Errorf("%s: the checkpoint is not saved", s.state)
		}
		for _, c := range s.committed() {
			if strings.HasPrefix(c.Manifest, "first-") {
				s.t.Errorf("%s: the checkpoint names a beginning: %+v", s.state, c)
			}
		}
		s.again()
	},
}

// Whatever happens in whatever state: every shard is acknowledged once, and the window stays within its
// limit.
func TestBeginningAndWhatMayHappen(t *testing.T) {
	for event, happens := range beginEvents {
		for _, state := range []string{beforePages, atBeginning, continuing, withWhole} {
			t.Run(event+" "+state, func(t *testing.T) {
				s := newScene(t, state)
				happens(s)
				s.rest()
			})
		}
	}
}
