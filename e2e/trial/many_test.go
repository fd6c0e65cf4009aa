package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stager-dev/stager/e2e/servers"
)

// A window whose list of objects does not stay in memory continues with it after each kill, and compares
// it with the source. Every shard is acknowledged once, and the list is part of the window's size.
func TestWindowKeepsItsListOverKills(t *testing.T) {
	binary, s3 := build(t), anS3(t)
	all := s3.fillMany(t, binary)
	kills := []float64{0.1, 0.4, 0.8}
	_, log := s3.window(t, binary, "many", all, Config{Readers: 4, Window: 8 << 20, KillStager: kills})
	if got := strings.Count(log, "continuing with the list of objects from before the restart"); got != len(kills) {
		t.Errorf("the list was used %d times after %d kills\n%s", got, len(kills), log)
	}
	if !strings.Contains(log, "source listed again, it has not changed") {
		t.Error("the list was not compared with the source")
	}
}

// fillMany pushes shards whose list does not stay in memory to the directory "many".
func (s store) fillMany(t *testing.T, binary string) shards {
	t.Helper()
	const count, size = 8000, 100
	packed, digests := t.TempDir(), make(map[string]string, count)
	for i := range count {
		body := []byte(strings.Repeat(fmt.Sprintf("%08d ", i), size)[:size])
		sum := sha256.Sum256(body)
		digest := hex.EncodeToString(sum[:])
		name := fmt.Sprintf("%s%s-%05d.tar", digest, digest, i) // long, so that the list is
		if err := os.WriteFile(filepath.Join(packed, name), body, 0o644); err != nil {
			t.Fatal(err)
		}
		digests[name] = digest
	}
	s.push(t, binary, packed, "many")
	return shards{count, size, digests}
}

// slowListings stands before an S3 server, and answers a page of a listing only after so long, one at a time.
func slowListings(t *testing.T, target string, page time.Duration) (endpoint string) {
	t.Helper()
	to, err := url.Parse(target)
	if err != nil {
		t.Fatal(err)
	}
	pass := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = to.Scheme, to.Host },
		Transport: &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64},
	}
	var turn sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("list-type") == "2" {
			turn.Lock()
			time.Sleep(page)
			turn.Unlock()
		}
		pass.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// A window begins before its source is listed, and is killed while it is, and after. Every shard is
// acknowledged once, and the first before the last page.
func TestWindowBeginsBeforeItsListOverKills(t *testing.T) {
	binary, s3 := build(t), anS3(t)
	all := s3.fillMany(t, binary)
	server := s3.Server.(*servers.S3)
	server.Endpoint = slowListings(t, server.Endpoint, time.Second)
	_, log := s3.window(t, binary, "many", all, Config{Readers: 4, Window: 16 << 20, Order: "by: name", KillStager: []float64{0.01, 0.06, 0.12, 0.5}})
	if got := strings.Count(log, "window open with the first objects of its source, listing the others"); got < 3 {
		t.Errorf("the window began %d times before its source was listed, want at the start and after the first kills\n%s", got, log)
	}
	if !strings.Contains(log, "source is listed, the window continues with all its objects") {
		t.Errorf("no window continued with all its objects\n%s", log)
	}
}
