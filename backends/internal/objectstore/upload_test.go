package objectstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends"
)

// noted is an Uploader that records its calls and fails as often as configured.
type noted struct {
	calls []string
	parts map[int][]byte
	small bytes.Buffer // as written to Sum
	fail  int
}

func (n *noted) call(name string) error {
	n.calls = append(n.calls, name)
	if n.fail > 0 {
		n.fail--
		return backends.Errorf(backends.Unavailable, name, "k", "the test's script")
	}
	return nil
}

func (n *noted) Begin(context.Context) error { return n.call("begin") }

func (n *noted) Send(_ context.Context, number int, src *backends.Part) error {
	if err := n.call("send"); err != nil {
		return err
	}
	data, err := io.ReadAll(src.Reader())
	if n.parts == nil {
		n.parts = make(map[int][]byte)
	}
	n.parts[number] = data
	return err
}

func (n *noted) Sum() io.Writer {
	n.small.Reset()
	return &n.small
}

func (n *noted) Publish(_ context.Context, small *backends.Part, size int64) (backends.Object, error) {
	if small != nil {
		data, err := io.ReadAll(small.Reader())
		if err != nil || !bytes.Equal(data, n.small.Bytes()) {
			return backends.Object{}, fmt.Errorf("%q is sent and %q was summed, %w", data, n.small.Bytes(), err)
		}
		n.parts = map[int][]byte{0: data}
	}
	return backends.Object{Key: "k", Size: size}, n.call("publish")
}

func (n *noted) Resume(_ context.Context, token string) (bool, error) {
	err := n.call("resume " + token)
	if token == "secret" {
		err = backends.Errorf(backends.Permission, "create", "k", "the test's script")
	}
	return token == "there", err
}

func (n *noted) Token() (id, token string, err error) { return "id", "there", nil }

func (n *noted) Drop(context.Context) error { return n.call("drop") }

// bytes returns everything sent.
func (n *noted) bytes() string {
	var all bytes.Buffer
	for _, number := range slices.Sorted(maps.Keys(n.parts)) {
		all.Write(n.parts[number])
	}
	return all.String()
}

var capabilities = backends.Capabilities{PartSize: 4, MaxParts: 3}

func TestStreamIsSplitIntoParts(t *testing.T) {
	for text, calls := range map[string]string{
		"":             "publish",
		"four":         "publish", // it was never more than one part
		"five5":        "begin send send publish",
		"twelve bytes": "begin send send send publish",
	} {
		var to noted
		w := Create(t.Context(), &to, "k", backends.CreateOptions{Size: -1}, capabilities)
		if _, err := io.Copy(w, strings.NewReader(text)); err != nil {
			t.Fatal(err)
		}
		obj, err := w.Commit(t.Context())
		if got := strings.Join(to.calls, " "); got != calls || to.bytes() != text || obj.Size != int64(len(text)) || err != nil {
			t.Errorf("%q: calls %q with %q, %d bytes, %v; want %q", text, got, to.bytes(), obj.Size, err, calls)
		}
	}
}

func TestStreamContinuesAfterFailures(t *testing.T) {
	to := noted{fail: 3}
	w := Create(t.Context(), &to, "k", backends.CreateOptions{Size: -1}, capabilities)
	for text := []byte("twelve bytes"); len(text) > 0; {
		n, err := w.Write(text)
		if text = text[n:]; err == nil && len(text) > 0 {
			t.Fatalf("%d bytes were not written, without an error", len(text))
		}
	}
	to.fail = 2
	var err error
	for range 3 {
		_, err = w.Commit(t.Context())
	}
	if err != nil || to.bytes() != "twelve bytes" {
		t.Errorf("after failures: %v with %q", err, to.bytes())
	}
	if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Invalid {
		t.Errorf("another Commit: %v, want kind invalid", err)
	}
}

func TestStreamEndsAtTheMaximumOfParts(t *testing.T) {
	var to noted
	w := Create(t.Context(), &to, "k", backends.CreateOptions{Size: -1}, capabilities)
	n, err := io.Copy(w, strings.NewReader("twelve bytes and more"))
	if err == nil {
		_, err = w.Commit(t.Context())
	}
	if backends.KindOf(err) != backends.Unsupported || !strings.Contains(err.Error(), "3 parts") || n > 16 {
		t.Errorf("after %d bytes: %v; want kind unsupported after 3 parts", n, err)
	}
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Count(strings.Join(to.calls, " "), "drop"); got != 1 {
		t.Errorf("the parts were dropped %d times, want once: %q", got, to.calls)
	}
	if _, err := w.Write([]byte("x")); backends.KindOf(err) != backends.Invalid {
		t.Errorf("Write after Abort: %v, want kind invalid", err)
	}
}

func TestSizesThatDifferFromAnnounced(t *testing.T) {
	var to noted
	w, err := CreateParts(t.Context(), &to, "k", backends.CreateOptions{Size: 4}, capabilities)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.WritePart(t.Context(), 0, backends.NewPart(strings.NewReader("one"), 0, 3)); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(t.Context()); backends.KindOf(err) != backends.Invalid {
		t.Errorf("3 bytes of 4: %v, want kind invalid", err)
	}
	broken := errors.New("the disk is broken")
	err = w.WritePart(t.Context(), 0, backends.NewPart(readerAt(func([]byte, int64) (int, error) { return 0, broken }), 0, 4))
	if !errors.Is(err, broken) {
		t.Errorf("a source that fails: %v, want %v", err, broken)
	}
}

type readerAt func([]byte, int64) (int, error)

func (f readerAt) ReadAt(p []byte, off int64) (int, error) { return f(p, off) }

// A resumable writer leaves its parts; one that finds none starts a new upload.
func TestWritersResumeWithParts(t *testing.T) {
	for _, tt := range []struct {
		resume string
		want   []string
	}{
		{"", []string{"begin"}},
		{"there", []string{"resume there"}},
		{"gone", []string{"resume gone", "begin"}},
		{"secret", []string{"resume secret", "begin"}},
	} {
		var to noted
		reported, named := "", ""
		opts := backends.CreateOptions{Size: SmallObject + 1, Resume: tt.resume, Begun: func(id, token string) { named, reported = id, token }}
		w, err := CreateParts(t.Context(), &to, "k", opts, backends.Capabilities{PartSize: SmallObject})
		if err == nil {
			err = w.Abort()
		}
		if err != nil || reported != "there" || named != "id" || !slices.Equal(to.calls, tt.want) {
			t.Errorf("resuming %q: %q was told, and asked were %q (%v), want %q", tt.resume, reported, to.calls, err, tt.want)
		}
	}
}
