package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/stager-dev/stager/backends"
)

// Injected is a fault that a server injects into the next requests that match it. Package fake in
// e2e/servers has the kinds.
type Injected struct {
	Kind   string
	Method string
	Key    string // a part of the key
	Param  string // a parameter that the request has; "": any
	Action string // beyond method and parameters, such as compose; "": any
	Bytes  int64
	Times  int
}

// Faulty describes an object store to the checks of faults.
type Faulty[P Runner[P]] struct {
	// Open opens a directory that no other check uses.
	Open func(t P, opts backends.Options) *backends.Store
	// Inject injects a fault; nil: the server cannot, and only checks without faults are made.
	Inject func(t P, f Injected)
	// Restart takes the server away for a moment.
	Restart func(t P)
	Sum     backends.Algorithm // the checksum of objects; "": the store has none
	Large   int64              // the size of an object that is written in parts
	// Reads and Writes are faults that this store survives beside those that every store survives.
	Reads, Writes []Injected
}

// Run makes all checks.
func (f Faulty[P]) Run(t P) {
	t.Run("a server that restarts", f.restarts)
	t.Run("uploads of a file that shrinks", f.shrinks)
	if f.Inject == nil {
		return
	}
	for _, c := range []struct {
		name string
		run  func(P)
	}{
		{"reads", f.reads},
		{"responses report the checksum", f.reports},
		{"writes", f.writes},
		{"writes report garbled bytes", f.garbled},
		{"aborts leave no upload", f.aborts},
		{"silence times out", f.silence},
	} {
		t.Run(c.name, c.run)
	}
}

// parallel runs a subtest beside others, where that is possible.
func parallel(t any) {
	if p, ok := t.(interface{ Parallel() }); ok {
		p.Parallel()
	}
}

// unique returns a key that no other fault matches.
func unique(name string) string { return fmt.Sprintf("%s-%d", name, time.Now().UnixNano()) }

// wantReads reports an object that does not hold the contents of "k".
func (f Faulty[P]) wantReads(t TB, store *backends.Store, obj backends.Object) {
	t.Helper()
	got, want := make(memory, obj.Size), ContentsOf("k", obj.Size)
	if f.Sum == "" {
		if _, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, nil); err != nil || !bytes.Equal(got, want.Bytes()) {
			t.Errorf("reading: %v, the bytes are right: %t", err, bytes.Equal(got, want.Bytes()))
		}
		return
	}
	h := f.Sum.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, obj.Size, got, h)
	if err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("reading: %v, the bytes are right: %t", err, bytes.Equal(got, want.Bytes()))
	}
	if sum := want.Sum(f.Sum); reported != sum || backends.SumOf(f.Sum, h) != sum {
		t.Errorf("the store reports %v, the received bytes have %v; want %v", reported, backends.SumOf(f.Sum, h), sum)
	}
}

// put writes the contents of "k".
func put(t TB, store *backends.Store, key string, size int64) backends.Object {
	t.Helper()
	obj, err := store.Put(t.Context(), key, ContentsOf("k", size), size, backends.CreateOptions{})
	if err != nil {
		t.Fatalf("putting %s: %v", key, err)
	}
	return obj
}

func (f Faulty[P]) reads(t P) {
	parallel(t)
	for _, fault := range append([]Injected{
		{Kind: "throttle", Times: 1},
		{Kind: "server-error", Times: 3},
		{Kind: "web-page", Times: 2},
		{Kind: "reset", Times: 2},
		{Kind: "cut", Bytes: 1_000_001, Times: 3},
		{Kind: "cut", Times: 2},
		{Kind: "slow", Times: 1},
		{Kind: "ignore-range", Times: 1},
	}, f.Reads...) {
		t.Run(fmt.Sprint(fault.Kind, fault.Bytes), func(t P) {
			parallel(t)
			store := f.Open(t, backends.Options{RetryFor: time.Minute})
			obj := put(t, store, unique("r"), 3<<20+5)
			fault.Method, fault.Key = "GET", obj.Key
			f.Inject(t, fault)
			f.wantReads(t, store, obj)
		})
	}
}

// The backend does not detect a flipped bit; the checksum in the response reveals it, for any range.
func (f Faulty[P]) reports(t P) {
	parallel(t)
	store := f.Open(t, backends.Options{})
	obj := put(t, store, unique("flip"), 100_000)
	f.Inject(t, Injected{Kind: "flip", Method: "GET", Key: obj.Key, Bytes: 777, Times: 1})
	h := f.Sum.New()
	reported, err := store.ReadRange(t.Context(), obj, 0, obj.Size, make(memory, obj.Size), h)
	if err != nil || reported != obj.Sum || reported == backends.SumOf(f.Sum, h) {
		t.Errorf("the store reports %v (%v), its object has %v, and the received bytes have %v", reported, err, obj.Sum, backends.SumOf(f.Sum, h))
	}
	obj.Sum = backends.Checksum{}
	if reported, err = store.ReadRange(t.Context(), obj, 50_000, 10, make(memory, obj.Size), nil); err != nil || reported.IsZero() {
		t.Errorf("a range in the middle reports %v, %v", reported, err)
	}
}

func (f Faulty[P]) writes(t P) {
	parallel(t)
	for _, size := range []int64{10, f.Large} {
		for _, fault := range append([]Injected{
			{Kind: "throttle", Method: "PUT", Times: 1},
			{Kind: "server-error", Method: "PUT", Times: 3},
			{Kind: "reset", Method: "PUT", Times: 2},
			{Kind: "flip-upload", Method: "PUT", Times: 2},
			{Kind: "lose-answer", Method: "PUT", Times: 1},
			{Kind: "wrong-crc", Method: "PUT", Param: "partNumber", Times: 2},
			{Kind: "server-error", Method: "POST", Param: "uploads", Times: 2},
			{Kind: "server-error", Method: "POST", Param: "uploadId", Times: 2},
			{Kind: "lose-answer", Method: "POST", Param: "uploadId", Times: 1},
		}, f.Writes...) {
			if size == 10 && (fault.Param != "" || fault.Method != "PUT") {
				continue // those requests belong to large objects
			}
			for _, ifAbsent := range []bool{false, true} {
				t.Run(fmt.Sprint(size, " ", fault.Kind, " ", fault.Method, fault.Param, fault.Action, ifAbsent), func(t P) {
					parallel(t)
					f.write(t, size, fault, backends.CreateOptions{IfAbsent: ifAbsent})
				})
			}
		}
	}
}

func (f Faulty[P]) write(t P, size int64, fault Injected, opts backends.CreateOptions) {
	store := f.Open(t, backends.Options{RetryFor: time.Minute})
	fault.Key = unique("w")
	f.Inject(t, fault)
	obj, err := store.Put(t.Context(), fault.Key, ContentsOf("k", size), size, opts)
	if err != nil || obj.Size != size || obj.Sum != ContentsOf("k", size).Sum(f.Sum) {
		t.Fatalf("Put = %+v, %v; want success", obj, err)
	}
	f.wantReads(t, store, obj)
	if _, err := store.PutBytes(t.Context(), fault.Key, nil, backends.CreateOptions{IfAbsent: true}); backends.KindOf(err) != backends.Exist {
		t.Errorf("another's Put: %v, want kind exist", err)
	}
}

func (f Faulty[P]) garbled(t P) {
	parallel(t)
	store := f.Open(t, backends.Options{})
	for _, tt := range []struct {
		size  int64
		fault Injected
		want  backends.Kind
	}{
		{10, Injected{Kind: "wrong-crc", Method: "PUT"}, backends.Corrupt},
		{10, Injected{Kind: "flip-upload", Method: "PUT"}, backends.Unknown},
		{f.Large, Injected{Kind: "forget-upload", Method: "PUT", Param: "uploadId"}, backends.Invalid},
		{f.Large, Injected{Kind: "wrong-crc", Method: "PUT", Param: "partNumber"}, backends.Unknown},
		{f.Large, Injected{Kind: "wrong-crc", Method: "POST", Param: "uploadId"}, backends.Corrupt},
	} {
		tt.fault.Key, tt.fault.Times = unique("g"), 10 // more than the number of attempts
		f.Inject(t, tt.fault)
		_, err := store.Put(t.Context(), tt.fault.Key, ContentsOf("k", tt.size), tt.size, backends.CreateOptions{})
		if backends.KindOf(err) != tt.want {
			t.Errorf("%+v: got %v (%v), want kind %v", tt.fault, err, backends.KindOf(err), tt.want)
		}
	}
	wantNoOrphans(t, store)
}

// wantNoOrphans reports what a sweep finds.
func wantNoOrphans(t TB, store *backends.Store) {
	t.Helper()
	if left := orphans(t, store, "", false); len(left) > 0 {
		t.Errorf("%v are left, want nothing", left)
	}
}

func (f Faulty[P]) aborts(t P) {
	parallel(t)
	for _, ifAbsent := range []bool{false, true} {
		store := f.Open(t, backends.Options{})
		raw, prefix := store.Backend()
		ctx, cancel := context.WithCancel(t.Context())
		w, err := raw.Create(ctx, prefix+"aborted", backends.CreateOptions{Size: -1, IfAbsent: ifAbsent})
		if err != nil {
			t.Fatalf("creating: %v", err)
		}
		if _, err := w.Write(make([]byte, store.Capabilities().PartSize+1)); err != nil {
			t.Fatalf("writing: %v", err)
		}
		if left := orphans(t, store, "", false); len(left) != 1 || left[0] != "aborted" {
			t.Fatalf("%v are in progress, want one", left)
		}
		cancel() // Abort works nevertheless
		for range 2 {
			if err := w.Abort(); err != nil {
				t.Errorf("Abort: %v", err)
			}
		}
		wantNoOrphans(t, store)
		if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Invalid {
			t.Errorf("Commit after Abort: %v, want kind invalid", err)
		}
	}
}

// The server goes away in the middle of many reads and writes.
func (f Faulty[P]) restarts(t P) {
	store := f.Open(t, backends.Options{RetryFor: time.Minute})
	size := store.Capabilities().PartSize + 1<<20
	old := put(t, store, "old", size)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() { f.wantReads(t, store, old) })
		all.Go(func() {
			obj, err := store.Put(t.Context(), fmt.Sprint("new", i), ContentsOf("k", size), size, backends.CreateOptions{IfAbsent: true})
			if err != nil {
				t.Errorf("%v", err)
				return
			}
			f.wantReads(t, store, obj)
		})
	}
	f.Restart(t)
	all.Wait()
}

// shrinking is a file that lost its end.
type shrinking struct{ size int64 }

func (f shrinking) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > f.size {
		return 0, io.EOF
	}
	return len(p), nil
}

func (f Faulty[P]) shrinks(t P) {
	parallel(t)
	store := f.Open(t, backends.Options{})
	for _, size := range []int64{1000, f.Large, store.Capabilities().PartSize + 1<<20} {
		var local *backends.LocalError
		if _, err := store.Put(t.Context(), "k", shrinking{size - 10}, size, backends.CreateOptions{}); !errors.As(err, &local) {
			t.Errorf("%d bytes: got %v, want a local error", size, err)
		}
	}
	wantNoOrphans(t, store)
}

func (f Faulty[P]) silence(t P) {
	parallel(t)
	store := f.Open(t, backends.Options{StallAfter: 300 * time.Millisecond})
	key := unique("silent")
	if _, err := store.PutBytes(t.Context(), key, []byte("x"), backends.CreateOptions{}); err != nil {
		t.Fatalf("putting: %v", err)
	}
	f.Inject(t, Injected{Kind: "stall", Method: "GET", Key: key, Times: 2})
	got, _, err := store.ReadAll(t.Context(), key, 10)
	if err != nil || string(got) != "x" {
		t.Errorf("got %q, %v; want the object, after silence", got, err)
	}
}
