package download

import (
	"errors"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/stager/plan"
	"github.com/stager-dev/stager/window"
)

func TestWindowErrorsNameTheFix(t *testing.T) {
	s := newSource(t, backends.CRC64NVME)
	objects := []backends.Object{s.Generate("good", 10), s.Generate("bad", 10), s.Generate("gone", 10), s.Generate("changed", 10)}
	s.corrupt["bad"] = 1
	if err := s.Delete(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	s.Generate("changed", 10)
	w := NewWindow([]From{{s.store, 1}, {s.store, 0}, {s.store, 3}}, plan.Manifest{Objects: plan.List(objects)}, VerifyAuto)
	f := directory(t, t.TempDir())
	for item, want := range []error{nil, window.ErrCorrupt, window.ErrGone, window.ErrGone} {
		digest, err := w.Fetch(t.Context(), item, incoming(t, f, objects[item]))
		if !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", objects[item].Key, err, want)
		}
		if want == nil && digest != objects[item].Sum.String() {
			t.Errorf("%s has the digest %q, want %v", objects[item].Key, digest, objects[item].Sum)
		}
	}
}
