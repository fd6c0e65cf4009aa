package smb

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"

	smb2 "github.com/cloudsoda/go-smb2"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/fileshare"
)

func TestClassify(t *testing.T) {
	answer := func(code uint32) error {
		return &os.PathError{Op: "open", Path: `a\b`, Err: &smb2.ResponseError{Code: code}}
	}
	for _, tt := range []struct {
		name string
		err  error
		kind backends.Kind
	}{
		{"logon failure", answer(0xC000006D), backends.Permission},
		{"account locked out", answer(0xC0000234), backends.Permission},
		{"password expired", answer(0xC0000071), backends.Permission},
		{"media write protected", answer(0xC00000A2), backends.Permission},
		{"access denied", &os.PathError{Err: os.ErrPermission}, backends.Permission},
		{"bad network name", answer(0xC00000CC), backends.NotExist},
		{"delete pending", answer(0xC0000056), backends.NotExist},
		{"name not found", &os.PathError{Err: os.ErrNotExist}, backends.NotExist},
		{"name collision", &os.LinkError{Err: os.ErrExist}, backends.Exist},
		{"disk full", answer(0xC000007F), backends.NoSpace},
		{"quota exceeded", answer(0xC0000044), backends.NoSpace},
		{"name invalid", answer(0xC0000033), backends.Invalid},
		{"clock skew", answer(0xC0000133), backends.Invalid},
		{"is a directory", answer(0xC00000BA), backends.Invalid},
		{"path not covered", answer(0xC0000257), backends.Unsupported},
		{"not supported", answer(0xC00000BB), backends.Unsupported},
		{"insufficient resources", answer(0xC0000205), backends.Throttled},
		{"request not accepted", smb2.ErrRequestNotAccepted, backends.Throttled},
		{"sharing violation", answer(0xC0000043), backends.Unavailable},
		{"session deleted", answer(0xC0000203), backends.Unavailable},
		{"session expired", answer(0xC000035C), backends.Unavailable},
		{"connection broken", &os.PathError{Err: &smb2.TransportError{Err: io.EOF}}, backends.Unavailable},
		{"wrong signature", &smb2.InvalidResponseError{Message: "packet failed signature verification"}, backends.Unavailable},
		{"session lost", &fileshare.LostError{Err: io.EOF}, backends.Unavailable},
		{"context over", context.Canceled, backends.Canceled},
		{"unheard of", answer(0xC0009999), backends.Unknown},
	} {
		err := classify("read", "k", tt.err)
		if got := backends.KindOf(err); got != tt.kind {
			t.Errorf("%s: got kind %s (%v), want %s", tt.name, got, err, tt.kind)
		}
		if strings.Contains(err.Error(), `a\b`) {
			t.Errorf("%s: %v tells a path beside the key", tt.name, err)
		}
	}
	// An error of the source is not an error of this backend.
	local := &backends.LocalError{Err: fs.ErrPermission}
	if got := classify("write", "k", local); got != error(local) {
		t.Errorf("classify(%v) = %v, want it as it is", local, got)
	}
	if err := classify("write", "k", fs.ErrPermission); !strings.Contains(err.Error(), "read-only") {
		t.Errorf("a write that is denied: %v, want words about a read-only share", err)
	}
	if err := missing("read", "k", answer(0xC0000033)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("looking for a name that the server does not take: %v, want not-exist", err)
	}
}

func TestCheckKey(t *testing.T) {
	for _, tt := range []struct {
		key               string
		mapped, asTheyAre bool // whether the key is valid
	}{
		{"a/b", true, true},
		{"ünïcödé 日本語 🚀", true, true},
		{"...hidden", true, true},
		{"CON", true, true},
		{strings.Repeat("ä", 255), true, true},
		{strings.Repeat("ä", 256), false, false},
		{"a:b", true, false},
		{`"*<>?|`, true, false},
		{"tab\t", true, false},
		{"dot.", true, false},
		{"dot./b", true, false},
		{"space ", true, false},
		{"\uf022", false, true},
		{`back\slash`, false, false},
		{"zero\x00", false, false},
		{"\xff", false, false},
		{"", false, false},
		{".", false, false},
		{"a//b", false, false},
		{"../a", false, false},
		{"/a", false, false},
		{"a/.stager-tmp-x", false, false},
		{".stager-tmp-x/a", false, false},
	} {
		for mapped, want := range map[bool]bool{true: tt.mapped, false: tt.asTheyAre} {
			err := checkKey("create", tt.key, mapped)
			if (err == nil) != want || err != nil && backends.KindOf(err) != backends.Invalid {
				t.Errorf("checkKey(%q, mapped %v) = %v, want it taken: %v", tt.key, mapped, err, want)
			}
		}
	}
}
