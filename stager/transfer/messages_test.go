package transfer

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/plan"
)

// forgetful refuses to write records of copies.
type forgetful struct{ backends.Backend }

func (f forgetful) Create(ctx context.Context, key string, opts backends.CreateOptions) (backends.Writer, error) {
	if strings.HasPrefix(key, plan.CopyRecords) {
		return nil, &backends.Error{Op: "create", Key: key, Kind: backends.Permission, Err: errors.New("read-only")}
	}
	return f.Backend.Create(ctx, key, opts)
}

// TestCopyLogsWhatItHandles provokes each message of a copy.
func TestCopyLogsWhatItHandles(t *testing.T) {
	for _, tt := range []struct {
		want     string
		src, dst func(*mem.Backend) backends.Backend
		faults   func(dst *side)
	}{
		{want: "wrong bytes, copying them again", src: func(b *mem.Backend) backends.Backend { return &turning{Backend: b, times: 1} }},
		{
			want: "cannot remove an object with wrong bytes", dst: func(b *mem.Backend) backends.Backend { return lying{struct{ backends.Backend }{b}} },
			// The next try finds the object, reads it, and finds it equal: here only the report is wrong.
			faults: func(dst *side) { dst.faults.Always(conformance.Delete, conformance.Fail(backends.Permission)) },
		},
		{want: "cannot record the copied objects, the next run reads them again", dst: func(b *mem.Backend) backends.Backend { return forgetful{b} }},
	} {
		t.Run(tt.want, func(t *testing.T) {
			side := func(name string, sum backends.Algorithm, wrap func(*mem.Backend) backends.Backend) *side {
				b := mem.NewWith(backends.Capabilities{Parallelism: 4, Checksum: sum})
				return wrapped(name, b, func(plain backends.Backend) backends.Backend {
					if wrap == nil {
						return plain
					}
					return wrap(b)
				})
			}
			src, dst := side("src", backends.MD5, tt.src), side("dst", "", tt.dst)
			if tt.faults != nil {
				tt.faults(dst)
			}
			src.Generate("a", 1000)
			var said bytes.Buffer
			if _, err := Copy(t.Context(), Config{Src: src.store, Dst: dst.store, Log: slog.New(slog.NewTextHandler(&said, nil))}); err != nil {
				t.Errorf("got %v, want no error", err)
			}
			equal(t, src, dst)
			if got := said.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, tt.want) {
				t.Errorf("got the log %q, want %q at warn", got, tt.want)
			}
		})
	}
}

// The record is written again after each object that comes later than a while after the last time.
func TestRecordThatCannotBeWrittenIsLogged(t *testing.T) {
	dst := wrapped("dst", mem.New(), func(b backends.Backend) backends.Backend { return forgetful{b} })
	var said bytes.Buffer
	r := &run{Config: Config{Log: slog.New(slog.NewTextHandler(&said, nil))}, record: &record{dst: dst.store, key: plan.CopyRecords + "all"}}
	r.note(t.Context(), backends.Object{Key: "a", Version: "1"}, backends.Object{Key: "a", Version: "2"})
	if got, want := said.String(), "cannot record a copied object, retrying later"; !strings.Contains(got, want) {
		t.Errorf("got the log %q, want %q", got, want)
	}
}
