package records

import (
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
)

const limit = 1 << 10

func newStore() (*mem.Backend, *conformance.Faults, *backends.Store) {
	b, faults := mem.New(), new(conformance.Faults)
	return b, faults, backends.NewStore(faults.Wrap(b), "mem://test", backends.Options{RetryFor: time.Millisecond})
}

func TestRecordIsReplacedInTheVersionRead(t *testing.T) {
	b, _, store := newStore()
	first, err := Create(t.Context(), store, "r", []byte("1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Create(t.Context(), store, "r", []byte("2")); backends.KindOf(err) != backends.Exist {
		t.Errorf("a second create: got %v, want kind exist", err)
	}
	second, err := Replace(t.Context(), store, "r", []byte("3"), first)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Replace(t.Context(), store, "r", []byte("4"), first); backends.KindOf(err) != backends.Changed || Unwritten(err) {
		t.Errorf("a replacement of an older version: got %v, want kind changed", err)
	}
	body, version, err := Read(t.Context(), store, "r", limit)
	if string(body) != "3" || version != second || err != nil {
		t.Errorf("Read = %q, %s, %v, want 3 in version %s", body, version, err, second)
	}
	if err := b.Delete(t.Context(), "r"); err != nil {
		t.Fatal(err)
	}
	if _, err := Replace(t.Context(), store, "r", []byte("5"), second); backends.KindOf(err) != backends.Changed {
		t.Errorf("a replacement of a record that is gone: got %v, want kind changed", err)
	}
}

// Without a version, Replace used to write unconditionally: two workers of a layout in such a store
// each took the record for its own.
func TestRecordWithoutVersionIsNotReplaced(t *testing.T) {
	b, _, store := newStore()
	b.Put("r", []byte("another's"))
	_, err := Replace(t.Context(), store, "r", []byte("mine"), "")
	if backends.KindOf(err) != backends.Unsupported || !Unwritten(err) {
		t.Errorf("got %v, want kind unsupported and nothing written", err)
	}
	if now, _ := b.Get("r"); string(now) != "another's" {
		t.Errorf("the record is %q, want it as it was", now)
	}
}

// A member that read its record while another replaced it took the error for a failure of the
// store.
func TestRecordReplacedDuringReadIsReadAgain(t *testing.T) {
	b, faults, store := newStore()
	b.Put("r", []byte("1"))
	faults.Add(conformance.Read, conformance.Fail(backends.Changed), conformance.Fail(backends.Changed))
	if body, _, err := Read(t.Context(), store, "r", limit); string(body) != "1" || err != nil {
		t.Errorf("Read = %q, %v, want 1", body, err)
	}
	if got := len(faults.Calls(conformance.Read)); got != 3 {
		t.Errorf("read %d times, want 3", got)
	}
	faults.Always(conformance.Read, conformance.Fail(backends.Changed))
	if _, _, err := Read(t.Context(), store, "r", limit); backends.KindOf(err) != backends.Changed {
		t.Errorf("of a record that changes with each read: got %v, want kind changed", err)
	}
}

func TestListedRecordIsReadInOneRequest(t *testing.T) {
	b, faults, store := newStore()
	listed := b.Put("r", []byte("1"))
	if body, version, err := ReadListed(t.Context(), store, listed, limit); string(body) != "1" || version != listed.Version || err != nil {
		t.Errorf("ReadListed = %q, %s, %v, want 1 in version %s", body, version, err, listed.Version)
	}
	if got := len(faults.Calls(conformance.Stat)); got != 0 {
		t.Errorf("looked up %d times, want 0", got)
	}
	now := b.Put("r", []byte("22"))
	if body, version, err := ReadListed(t.Context(), store, listed, limit); string(body) != "22" || version != now.Version || err != nil {
		t.Errorf("after a replacement ReadListed = %q, %s, %v, want 22 in version %s", body, version, err, now.Version)
	}
	if _, _, err := ReadListed(t.Context(), store, now, 1); backends.KindOf(err) != backends.Invalid {
		t.Errorf("a record over the limit: got %v, want kind invalid", err)
	}
}

func TestRecordErrorsThatProveNothing(t *testing.T) {
	for _, kind := range []backends.Kind{backends.Unavailable, backends.Unknown, backends.Exist, backends.Changed, backends.Canceled} {
		if Unwritten(backends.Errorf(kind, "write", "r", "test")) {
			t.Errorf("an error of kind %v proves that nothing was written, want that it does not", kind)
		}
	}
	if Unwritten(nil) {
		t.Error("no error proves that nothing was written")
	}
}
