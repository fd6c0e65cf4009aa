package trial

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A window whose list of objects does not stay in memory continues with it after each kill, and compares
// it with the source. Every shard is acknowledged once, and the list is part of the window's size.
func TestWindowKeepsItsListOverKills(t *testing.T) {
	const count, size = 8000, 100
	binary, s3 := build(t), anS3(t)
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
	s3.push(t, binary, packed, "many")
	kills := []float64{0.1, 0.4, 0.8}
	_, log := s3.window(t, binary, "many", shards{count, size, digests}, Config{Readers: 4, Window: 8 << 20, KillStager: kills})
	if got := strings.Count(log, "continuing with the list of objects from before the restart"); got != len(kills) {
		t.Errorf("the list was used %d times after %d kills\n%s", got, len(kills), log)
	}
	if !strings.Contains(log, "source listed again, it has not changed") {
		t.Error("the list was not compared with the source")
	}
}
