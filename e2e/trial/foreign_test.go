package trial

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/backendtest/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// exits runs stager to its end, which must be of a code, and returns what it says.
func (s store) exits(t *testing.T, binary string, want int, args ...string) string {
	t.Helper()
	m, err := measure(s.command(t, binary, args...), 0, nil)
	if err != nil || m.exit != want {
		t.Errorf("%s: got exit %d, %v; want %d\n%s", strings.Join(args, " "), m.exit, err, want, m.log)
	}
	return m.log
}

// equalTrees checks that two folders have the same files.
func equalTrees(t *testing.T, a, b string) {
	t.Helper()
	if out, err := exec.Command("diff", "-r", "--exclude=.stager", "--exclude=RESTORED.json", a, b).CombinedOutput(); err != nil {
		t.Errorf("%s and %s differ: %v\n%s", a, b, err, out)
	}
}

// moto answers HEAD of a missing key with a type of HTML, and forgets all when it is
// killed; so it is only kept from answering.
func TestForeignServerMoto(t *testing.T) {
	moto, err := servers.StartMoto(t.Context(), "trial")
	live.Require(t, "foreign", err)
	t.Cleanup(func() {
		if err := moto.Close(); err != nil {
			t.Error(err)
		}
	})
	s := store{Server: moto, url: func(dir string) string { return "s3://trial/" + dir + "/" }}
	binary, back := build(t), t.TempDir()
	all := s.fill(t, binary, "noise", 40, 64<<10)
	if full {
		s.exits(t, binary, 0, "check", s.url("check"))
	}
	s.exits(t, binary, 0, "prefetch", s.url("noise"), filepath.Join(back, "noise"))
	for _, step := range []string{"5", "6"} {
		s.exits(t, binary, 0, "push", "--commit", "--step", step, filepath.Join(back, "noise"), s.url("ckpt"))
	}
	s.exits(t, binary, 0, "restore", s.url("ckpt"), filepath.Join(back, "ckpt"))
	equalTrees(t, filepath.Join(back, "noise"), filepath.Join(back, "ckpt"))
	s.exits(t, binary, 0, "prune", "--last", "1", s.url("ckpt"))
	frozen := false
	s.window(t, binary, "noise", all, Config{
		Readers: 2, Pace: 10 * time.Millisecond,
		During: func(acked, total int) error {
			if frozen || acked < total/2 {
				return nil
			}
			frozen = true
			if err := moto.Freeze(); err != nil {
				return err
			}
			time.Sleep(time.Second) // it is the outage itself, not a wait for something
			return moto.Thaw()
		},
	})
}

// impacket's server sets all ids of files to 0, refuses a login with a short answer, and
// denies what stager asks for to write.
func TestForeignServerImpacket(t *testing.T) {
	smb, err := servers.StartImpacket(t.Context())
	live.Require(t, "foreign", err)
	t.Cleanup(func() {
		if err := smb.Close(); err != nil {
			t.Error(err)
		}
	})
	s := store{Server: smb, url: func(dir string) string { return "smb://" + smb.Address + "/data/" + dir + "/" }}
	binary, back := build(t), t.TempDir()
	noise := filepath.Join(smb.Dir, "noise")
	if err := os.Mkdir(noise, 0o755); err != nil {
		t.Fatal(err)
	}
	all := shards{count: 40, size: 64 << 10}
	if all.digests, err = PackNoise(noise, all.count, all.size); err != nil {
		t.Fatal(err)
	}
	s.exits(t, binary, 0, "prefetch", s.url("noise"), filepath.Join(back, "noise"))
	equalTrees(t, noise, filepath.Join(back, "noise"))
	wrong := s.command(t, binary, "ls", s.url("noise"))
	wrong.Env = append(wrong.Env, "SMB_PASSWORD=wrong")
	if m, err := measure(wrong, 0, nil); err != nil || m.exit != 77 || !strings.Contains(m.log, "does not take this user name with this password") {
		t.Errorf("a wrong password: got exit %d, %v; want 77\n%s", m.exit, err, m.log)
	}
	died := false
	s.window(t, binary, "noise", all, Config{
		Readers: 2, Pace: 10 * time.Millisecond,
		During: func(acked, total int) error {
			if died || acked < total/2 {
				return nil
			}
			died = true
			_, err := s.goAway(t.Context(), time.Second)
			return err
		},
	})
}
