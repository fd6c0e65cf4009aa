package trial

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// A large file goes in six parts, one after another; stager is killed when three are in
// the store. The next one sends those that are missing, and what it had begun.
func TestUploadResumesAtItsParts(t *testing.T) {
	t.Parallel()
	const parts, before = 6, 3
	s, err := startS3(t)
	live.Require(t, "s3", err)
	t.Cleanup(func() { _ = s.Close() })
	proxy, err := servers.NewProxy(s.Server.(*servers.S3).Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	env := append(s.Env(), "AWS_ENDPOINT_URL_S3="+proxy.URL)
	v := vault{binary: build(t), url: s.url("ckpt"), disk: s.disk, env: env, names: s.names}
	j := newJob(t, v, "16Mi, connections: 1", "") // a second for each part, so that a busy machine kills in time
	files := map[string][]byte{"model.pt": content(1, "", parts*16<<20)["model.pt"]}
	j.write(t, 1, files)
	sent := func() (n int) {
		for r, count := range proxy.Counts() {
			if r.Method == http.MethodPut && strings.HasSuffix(r.Path, "/model.pt") {
				n += count
			}
		}
		return n
	}
	j.start(t)
	for until := time.Now().Add(patience); sent() <= before; time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%d parts are sent, want %d", sent(), before)
		}
	}
	j.run.kill()
	first := sent()
	if first > parts-1 {
		t.Fatalf("all %d parts were sent before the kill", first)
	}
	j.start(t)
	j.end(t)
	if got := j.restore(t, func(int) map[string][]byte { return files }); got != 1 {
		t.Errorf("step %d is restored, want 1", got)
	}
	if again := sent() - first; again > parts-before {
		t.Errorf("after %d of %d parts had been sent, and one of them was cut, %d were, want %d", first, parts, again, parts-before)
	}
	if left := v.unreferenced(t); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}
