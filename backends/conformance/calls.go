package conformance

import (
	"bytes"
	"context"
	"io"
	"slices"
	"time"

	"github.com/stager-dev/stager/backends"
)

// A Scripted is an empty store of files whose server fails at one call.
type Scripted struct {
	Store *backends.Store
	// FailAt selects the call that fails, counted from 1 and from now on; 0 for none.
	FailAt func(call int)
	// Calls returns the number of calls since FailAt.
	Calls func() int
	// Names returns the names of all files of the server, also those that listings omit.
	Names func() []string
}

// FailingCalls checks that an upload is published whole, or returns an error and publishes nothing,
// whichever of its calls fails, and that no temporary file is left. scripted opens a new store for
// each call, and closes it when use has returned.
func FailingCalls(t TB, scripted func(use func(TB, Scripted))) {
	t.Helper()
	for _, u := range []failingUpload{
		{name: "new"},
		{name: "over another", old: true},
		{name: "if absent", opts: backends.CreateOptions{IfAbsent: true}},
		{name: "a stream", stream: true},
		{name: "a stream over another", stream: true, old: true},
	} {
		calls, failed := 1, 0
		for n := 0; n <= calls; n++ {
			var left func() []string
			scripted(func(t TB, s Scripted) {
				left = s.Names
				was := u.run(t, s, n)
				if n == 0 {
					calls = was.calls
				}
				if was.err != nil {
					failed++
				}
			})
			if names := left(); slices.ContainsFunc(names, func(name string) bool { return name != "k" }) {
				t.Errorf("%s, call %d: %q are left", u.name, n, names)
			}
		}
		t.Logf("%s: %d of %d uploads with a call that fails have failed", u.name, failed, calls)
	}
}

type failingUpload struct {
	name        string
	opts        backends.CreateOptions
	old, stream bool
}

type uploaded struct {
	calls int
	err   error
}

func (u failingUpload) run(t TB, s Scripted, n int) uploaded {
	t.Helper()
	const size = 20_000
	before, want := []byte("before"), ContentsOf("k", size).Bytes()
	if u.old {
		if _, err := s.Store.PutBytes(t.Context(), "k", before, backends.CreateOptions{}); err != nil {
			t.Fatalf("%s: %v", u.name, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	s.FailAt(n)
	var err error
	if u.stream {
		err = s.stream(ctx, want)
	} else {
		_, err = s.Store.Put(ctx, "k", ContentsOf("k", size), size, u.opts)
	}
	calls := s.Calls()
	s.FailAt(0)
	got, _, rerr := s.Store.ReadAll(t.Context(), "k", 1<<20)
	switch {
	case n == 0 && err != nil:
		t.Fatalf("%s: %v", u.name, err)
	case err == nil && !bytes.Equal(got, want):
		t.Errorf("%s, call %d: the upload worked, and the key has %d bytes or other ones, %v; want %d", u.name, n, len(got), rerr, size)
	case err != nil && u.old && !bytes.Equal(got, before), err != nil && !u.old && backends.KindOf(rerr) != backends.NotExist:
		t.Errorf("%s, call %d: the upload failed with %v, and the key has %d bytes, %v", u.name, n, err, len(got), rerr)
	}
	return uploaded{calls, err}
}

// stream writes once: what it has written cannot be sent again.
func (s Scripted) stream(ctx context.Context, p []byte) error {
	b, prefix := s.Store.Backend()
	w, err := b.Create(ctx, prefix+"k", backends.CreateOptions{Size: -1})
	if err != nil {
		return err
	}
	defer w.Abort() // the error that led here is more useful
	if _, err := io.Copy(w, bytes.NewReader(p)); err != nil {
		return err
	}
	_, err = w.Commit(ctx)
	if err != nil && backends.KindOf(err).Retryable() {
		_, err = w.Commit(ctx) // the outcome of the first is unknown
	}
	return err
}
