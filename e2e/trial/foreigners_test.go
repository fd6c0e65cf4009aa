package trial

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/e2e/servers"
)

// foreigner is a server of another project, and what is known to be different there.
type foreigner struct {
	name, needs string // needs is what STAGER_TEST_REQUIRE calls it
	start       func(*testing.T) (store, error)
	checked     []int    // the exit codes of check, of which it ends with one; nil: 0
	read        int      // that of check --read-only
	broken      []string // promises that check may find broken
	byHand      bool     // it takes too long for the short form
	forgets     bool     // everything, when it is killed: it is only kept from answering
	readOnly    bool     // it refuses writes
	ignoresCase bool
}

// mixes are the exit codes of check at a server that sends a mixture of two versions, or a response
// that does not end, while an object is replaced. Only the former is wrong bytes, and which of them a
// reader meets depends on the moment.
var mixes = []int{76, 78}

var foreigners = []foreigner{
	// Errors have a type of HTML, and no request id.
	{name: "moto", needs: "foreign", start: foreignS3(servers.StartMoto), forgets: true},
	// Google Cloud Storage without the XML API for writing.
	{name: "fake-gcs-server", needs: "foreign", start: startFakeGCS, forgets: true},
	// Ranges come with status 200; directories are objects; conditions are not looked at;
	// the ETag of a completed upload is another one later.
	{
		name: "rclone", needs: "foreign", start: foreignS3(servers.StartRclone), checked: mixes,
		broken: []string{
			"a missing key is reported as missing", "at full speed bytes round-trip",
			"a change between two ranges is detected", "a write returns what stat returns later", "parts may come in any order, and twice",
			"a delete removes one key, and may be repeated", "an existing key is kept, if requested", "of eight writers of a free key one wins",
			"a replacement leaves nothing behind", "of several writers that replace one version one wins, each round", "claims are hidden and can be swept",
			"readers see the old object or the new one",
		},
	},
	// Completions with a field for a checksum are answered with 500, as are long names and
	// those below a file, and deletions there. The ETag of a completed upload is another one
	// later, so that reading what was just written is refused.
	{
		name: "s3proxy", needs: "foreign", start: foreignS3(servers.StartS3Proxy), checked: []int{78}, read: 78,
		broken: []string{
			"a missing key is reported as missing", "unusual names round-trip", "many at once do not disturb each other",
			"a write returns what stat returns later", "a delete removes one key, and may be repeated",
		},
	},
	// Listings of a directory and of what begins as its name does are out of byte order.
	{
		name: "seaweedfs", needs: "foreign-more", start: foreignS3(servers.StartSeaweedFS), checked: []int{78}, byHand: true,
		broken: []string{"a missing key is reported as missing", "unusual names round-trip"},
	},
	// Completions with a checksum of CRC-64/NVME are refused with 400 BadRequest, and without one
	// after parts with it, too. Readers see a mixture while an object is replaced, and after
	// conditional writes stat finds none. Conditions are looked at before the write, so that on some
	// days several writers win.
	{
		name: "s3mock", needs: "foreign-more", start: foreignS3(servers.StartS3Mock), checked: mixes, byHand: true,
		broken: []string{
			"unusual names round-trip", "readers see the old object or the new one", "an existing key is kept, if requested",
			"a commit replaces only the version that it names", "a replacement leaves nothing behind",
			"of several writers that replace one version one wins, each round", "a change under way mixes no versions",
			"of eight writers of a free key one wins", "of eight writers that replace one version one wins",
		},
	},
	// An object is locked while it is sent, so that a write waits until its readers are done. Other
	// clients wait as long as stager. Where the machine is slow, the reader may be done in time.
	{
		name: "minio", needs: "minio", start: foreignS3(servers.StartMinIO), checked: []int{0, 78}, byHand: true,
		broken: []string{"a change does not wait for readers"},
	},
	// All ids of files are 0 in listings alone, a login is refused with a short answer, and writes
	// are denied, but not removals. The replaced version that check makes up differs in the id alone,
	// which is not compared there.
	{
		name: "impacket", needs: "foreign", start: startImpacket, readOnly: true, read: 78,
		broken: []string{"a version that was replaced is rejected"},
	},
	// A share that ignores case keeps "UPPER" and "upper" as one, which check says.
	{
		name: "samba ignoring case", needs: "smb", start: startCaseless, ignoresCase: true, checked: []int{78},
		broken: []string{"unusual names round-trip"},
	},
	{name: "nfs without READDIRPLUS", needs: "nfs", start: startNoPlus},
	// Times are whole seconds: a claim that is made again within one may have its old token. And
	// READDIRPLUS is refused, as are mounts from ports above 1023.
	{name: "unfs3", needs: "unfs3", start: startUnfs3, checked: []int{78}, broken: []string{"claims are hidden and can be swept"}, byHand: true},
}

func foreignS3(start func(ctx context.Context, bucket string) (*servers.Foreign, error)) func(*testing.T) (store, error) {
	return func(t *testing.T) (store, error) {
		s, err := start(t.Context(), "trial")
		return store{Server: s, url: func(dir string) string { return "s3://trial/" + dir + "/" }}, err
	}
}

func startFakeGCS(t *testing.T) (store, error) {
	s, err := servers.StartFakeGCS(t.Context(), servers.FakeGCSOptions{})
	return store{Server: s, url: func(dir string) string { return "gs://test/" + dir + "/" }}, err
}

func startImpacket(t *testing.T) (store, error) {
	s, err := servers.StartImpacket(t.Context())
	if err != nil {
		return store{}, err
	}
	return store{Server: s, url: func(dir string) string { return "smb://" + s.Address + "/data/" + dir + "/" }, disk: s.Dir}, nil
}

func startCaseless(t *testing.T) (store, error) {
	s, err := servers.StartSamba(t.Context(), servers.SambaOptions{IgnoreCase: true})
	if err != nil {
		return store{}, err
	}
	return store{Server: s, url: func(dir string) string { return "smb://" + s.Address + "/data/" + dir + "/" }, disk: s.Dir}, nil
}

func startNoPlus(t *testing.T) (store, error) {
	n, err := servers.StartNoPlus(t.Context(), servers.GaneshaOptions{})
	if err != nil {
		return store{}, err
	}
	return store{Server: n, url: func(dir string) string {
		return "nfs://" + n.Address + "/data/" + dir + "/?vers=3&mountport=" + n.MountPort
	}, disk: n.Dir}, nil
}

func startUnfs3(t *testing.T) (store, error) {
	u, err := servers.StartUnfs3(t.Context())
	if err != nil {
		return store{}, err
	}
	return store{Server: u, url: func(dir string) string {
		return "nfs://" + u.Address + u.Dir + "/" + dir + "/?vers=3&mountport=" + u.MountPort
	}, disk: u.Dir}, nil
}

// collide pushes two names that are one there: the second is named, and saved by nobody.
func (w *foreignWalk) collide(t *testing.T) {
	for _, name := range []string{"A.txt", "a.txt", "b.txt"} {
		if err := os.MkdirAll(w.path("both"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(w.path("both"), name), []byte("of "+name), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, log := w.exits(t, 75, "push", w.path("both"), w.url("both"))
	if !strings.Contains(log, "A.txt") || !strings.Contains(log, "a.txt") {
		t.Errorf("the log names not both files:\n%s", log)
	}
	if text, err := os.ReadFile(filepath.Join(w.disk, "both", "b.txt")); err != nil || string(text) != "of b.txt" {
		t.Errorf("got %q, %v of the third file, want it saved", text, err)
	}
}

// wrongPassword is refused at once, in words.
func (w *foreignWalk) wrongPassword(t *testing.T) {
	wrong := w.command(t, w.binary, "ls", w.url("data"))
	wrong.Env = append(wrong.Env, "SMB_PASSWORD=wrong")
	if m, err := measure(wrong, 0, nil); err != nil || m.exit != 77 || !strings.Contains(m.log, "wrong user name or password") {
		t.Errorf("a wrong password: got exit %d, %v; want 77\n%s", m.exit, err, m.log)
	}
}
