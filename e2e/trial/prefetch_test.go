package trial

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// A prefetch that is killed at random moments and run again ends with the source's
// bytes. Files that were there are not asked for again, and of those that were half
// there little is. STAGER_TRIAL=full takes 2 GiB and kills 20 times.
func TestPrefetchGoesOnAfterKills(t *testing.T) {
	unit, kills := int64(1<<20), 6
	if full {
		unit, kills = 8<<20, 20
	}
	sizes := map[string]int64{"big/model.bin": 128 * unit, "empty": 0}
	for i := range 8 {
		sizes["shards/"+string(rune('a'+i))+".tar"] = 12 * unit
	}
	for i := range 200 {
		sizes["small/"+string(rune('a'+i%20))+"/"+string(rune('a'+i/20))] = unit/8 + int64(i)
	}
	bin := build(t)
	s3 := anS3(t)
	direct := s3.Server.(*servers.S3).Endpoint
	proxy, err := servers.NewProxy(direct)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	source, dst := t.TempDir(), t.TempDir()
	var total int64
	for name, size := range sizes {
		total += size
		if err := writeNoise(filepath.Join(source, name), size); err != nil {
			t.Fatal(err)
		}
	}
	stager := func(ctx context.Context, endpoint string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Env = append(append(os.Environ(), s3.Env()...), "AWS_ENDPOINT_URL_S3="+endpoint)
		cmd.Stderr = os.Stderr
		return cmd
	}
	if err := stager(t.Context(), direct, "push", "--quiet", source, "s3://trial/data/").Run(); err != nil {
		t.Fatal(err)
	}

	prefetch := []string{"prefetch", "--quiet", "s3://trial/data/", dst}
	gets := func() (n map[string]int) {
		n = make(map[string]int)
		for r, count := range proxy.Counts() {
			if key, ok := strings.CutPrefix(r.Path, "/trial/data/"); ok && r.Method == http.MethodGet && key != "" {
				n[key] += count
			}
		}
		return n
	}
	whole := func() (names []string) {
		for name, size := range sizes {
			if info, err := os.Stat(filepath.Join(dst, name)); err == nil && info.Size() == size {
				names = append(names, name)
			}
		}
		return names
	}
	killed := 0
	for run := 0; ; run++ {
		there, before := whole(), gets()
		ctx, cancel := context.WithCancel(t.Context())
		cmd := stager(ctx, proxy.URL, prefetch...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if run < kills {
			// A moment between the first byte and the last.
			until := proxy.Sent() + rand.Int64N(total/int64(kills)+1)
			for proxy.Sent() < until && len(whole()) < len(sizes) {
				time.Sleep(time.Millisecond)
			}
			cancel() // SIGKILL
		}
		err := cmd.Wait()
		cancel()
		after := gets()
		for _, name := range there {
			if after[name] != before[name] {
				t.Errorf("run %d asked for %s, which was there", run, name)
			}
		}
		var exit *exec.ExitError
		if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
			killed++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		break
	}
	for name := range sizes {
		got, err := digest(filepath.Join(dst, name))
		want, werr := digest(filepath.Join(source, name))
		if err != nil || werr != nil || got != want {
			t.Errorf("%s: got %s (%v), want %s (%v)", name, got, err, want, werr)
		}
	}
	sent, before := proxy.Sent(), gets()
	if err := stager(t.Context(), proxy.URL, prefetch...).Run(); err != nil {
		t.Fatal(err)
	}
	for name, n := range gets() {
		if n != before[name] {
			t.Errorf("a warm run asked for %s", name)
		}
	}
	extra := sent - total
	t.Logf("killed %d times; %d bytes of data, %d sent: %.1f %% more than once, %d bytes a kill",
		killed, total, sent, 100*float64(extra)/float64(total), extra/int64(max(killed, 1)))
	if killed < kills/2 {
		t.Errorf("killed %d times of %d: the trial was too short to prove anything", killed, kills)
	}
	// Of each file on its way at most 2 MiB are not noted, and what is in flight.
	if most := int64(killed) * 32 * (4 << 20); extra > min(most, total*int64(killed)/4) {
		t.Errorf("%d bytes were sent more than once", extra)
	}
	if left, err := fs.Glob(os.DirFS(dst), ".stager/incoming/*"); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// writeNoise writes bytes that differ everywhere.
func writeNoise(path string, size int64) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	var seed [32]byte
	binary.BigEndian.PutUint64(seed[:], rand.Uint64())
	noise := rand.NewChaCha8(seed)
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buf := make([]byte, 1<<20)
	for left := size; left > 0; left -= int64(len(buf)) {
		buf = buf[:min(left, int64(len(buf)))]
		_, _ = noise.Read(buf)
		if _, err := file.Write(buf); err != nil {
			return errors.Join(err, file.Close())
		}
	}
	return file.Close()
}
