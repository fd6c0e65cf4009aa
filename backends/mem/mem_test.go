package mem_test

import (
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

func TestContract(t *testing.T) {
	b := mem.New()
	conformance.Run(t, func(*testing.T) *backends.Store {
		return backends.NewStore(b, "mem://test", backends.Options{})
	}, conformance.Options{})
	if keys := b.Keys(); len(keys) > 0 {
		t.Errorf("the contract leaves %d objects, such as %q", len(keys), keys[0])
	}
	if n := b.Writers(); n > 0 {
		t.Errorf("%d writers were neither committed nor aborted", n)
	}
}

// The same store without parts, which takes another path in Put.
func TestContractWithoutParts(t *testing.T) {
	conformance.Run(t, func(*testing.T) *backends.Store {
		return backends.NewStore(struct{ backends.Backend }{mem.New()}, "mem://test", backends.Options{})
	}, conformance.Options{Without: []string{conformance.AnyOrder}})
}

func TestReplacements(t *testing.T) {
	b := mem.New()
	open := func() *backends.Store { return backends.NewStore(b, "mem://test", backends.Options{}) }
	conformance.Replacements(t, open(), open())
}

func TestGenerateIsFree(t *testing.T) {
	b := mem.New()
	obj := b.Generate("shard", 1<<50)
	at, n := int64(1<<49+12345), int64(1000)
	body, err := b.OpenRange(t.Context(), obj, at, n)
	if err != nil {
		t.Fatal(err)
	}
	got, want := make([]byte, n), make([]byte, n)
	if _, err := body.Read(got); err != nil {
		t.Fatal(err)
	}
	if _, err := conformance.ContentsOf("shard", 1<<50).ReadAt(want, at); err != nil {
		t.Fatal(err)
	}
	if string(got) != string(want) || obj.Sum.IsZero() {
		t.Errorf("bytes of a petabyte: right %v, sum %v", string(got) == string(want), obj.Sum)
	}
}
