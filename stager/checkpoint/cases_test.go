package checkpoint

import (
	"archive/zip"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends/mem"
)

// caseFile is a file as torch.save writes it.
func caseFile(text string) string {
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	w, err := z.Create("archive/data.pkl")
	if err == nil {
		_, err = w.Write([]byte(text))
	}
	if err = errors.Join(err, z.Close()); err != nil {
		panic(err) // writes to a buffer do not fail
	}
	return b.String()
}

// tensors is a safetensors file with one tensor of n bytes.
func tensors(n int) string {
	header := fmt.Sprintf(`{"t%d":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}}`, n)
	return string([]byte{byte(len(header)), 0, 0, 0, 0, 0, 0, 0}) + header + "data"
}

// restoredFiles describes how many files a restore writes, or that there is nothing to restore.
func restoredFiles(t *testing.T, b *mem.Backend) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "restored")
	if _, err := Restore(t.Context(), RestoreConfig{Store: newStore(b), Dir: dir, Step: Newest}); err != nil {
		return "nothing"
	}
	return fmt.Sprint(len(read(t, dir)), " files")
}

// completionCases are the cases in which the default settings lost checkpoints or committed
// partial ones. before is the result at that time.
var completionCases = []struct {
	name   string
	do     func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string
	want   string
	before string
}{
	{"1: a pause between two files", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		at := filepath.Join(dir, "step-500")
		write(t, at, map[string]string{"model.pt": caseFile("model")})
		settled(t, u)
		time.Sleep(4 * time.Second)
		write(t, at, map[string]string{"optim.pt": caseFile("optim")})
		settled(t, u)
		return fmt.Sprintf("restored %s, failed %d", restoredFiles(t, b), len(u.Status().Failed))
	}, "restored 2 files, failed 0", "restored 1 files, failed 1"},
	{"2: a pause between shards", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		at, all := filepath.Join(dir, "step-500"), make(map[string]string)
		index := `{"metadata":{"total_size":12},"weight_map":{`
		for i := range 3 {
			all[fmt.Sprintf("model-%05d-of-00003.safetensors", i+1)] = tensors(i)
			index += fmt.Sprintf(`"t%d":"model-%05d-of-00003.safetensors",`, i, i+1)
		}
		first := "model-00001-of-00003.safetensors"
		write(t, at, map[string]string{first: all[first]})
		settled(t, u)
		time.Sleep(2 * time.Second)
		early := len(commits(b))
		all["model.safetensors.index.json"] = strings.TrimSuffix(index, ",") + "}}"
		write(t, at, all)
		settled(t, u)
		return fmt.Sprintf("%d committed with 1 of 3 shards, then restored %s", early, restoredFiles(t, b))
	}, "0 committed with 1 of 3 shards, then restored 4 files", "1 committed with 1 of 3 shards, then restored 1 files"},
	{"3: torch.distributed.checkpoint without collectives", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		write(t, filepath.Join(dir, "step-500"), map[string]string{"__0_0.distcp": "a", "__1_0.distcp": "b"})
		write(t, filepath.Join(dir, "step-500"), map[string]string{"__0.metadata": "\x80\x02.", "__1.metadata": "\x80\x02."})
		settled(t, u)
		time.Sleep(time.Hour)
		settled(t, u)
		return "restored " + restoredFiles(t, b)
	}, "restored 4 files", "restored nothing"},
	{"4: a save at SIGTERM that did not end", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		write(t, filepath.Join(dir, "checkpoint-4"), map[string]string{"checkpoint-is-incomplete.txt": "", "optimizer.pt": caseFile("o")})
		write(t, filepath.Join(dir, "checkpoint-4"), map[string]string{"trainer_state.json": "{}"})
		settled(t, u)
		settled(t, u)
		return "restored " + restoredFiles(t, b)
	}, "restored nothing", "restored 3 files"},
	{"5: a trainer that keeps two and saves every 5 s", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		for step := 1; step <= 5; step++ {
			write(t, filepath.Join(dir, fmt.Sprint("step-", step)), map[string]string{"model.pt": caseFile("m"), "optim.pt": caseFile("o")})
			if err := os.RemoveAll(filepath.Join(dir, fmt.Sprint("step-", step-2))); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				pass(t, u)
				time.Sleep(2500 * time.Millisecond)
			}
		}
		settled(t, u)
		return fmt.Sprintf("%d of 5 committed", len(commits(b)))
	}, "5 of 5 committed", "2 of 5 committed"},
	{"6: seconds from a sign to COMMIT", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		var took []string
		for _, w := range []struct{ name, at, data, sign, text string }{
			{"DCP", "step-1", "step-1/__0_0.distcp", "step-1/.metadata", "pickle."},
			{"DeepSpeed", "global_step2", "global_step2/mp_rank_00_model_states.pt", "latest", "global_step2"},
			{"Trainer", "checkpoint-3", "checkpoint-3/training_args.bin", "checkpoint-3/trainer_state.json", "{}"},
		} {
			write(t, dir, map[string]string{w.data: caseFile("data")})
			write(t, dir, map[string]string{w.sign: w.text})
			before, began := len(commits(b)), time.Now()
			for time.Since(began) < 20*time.Second {
				if pass(t, u); len(commits(b)) > before {
					break
				}
				time.Sleep(100 * time.Millisecond)
			}
			took = append(took, fmt.Sprintf("%s %.0f", w.name, time.Since(began).Seconds()))
		}
		return strings.Join(took, ", ")
	}, "DCP 0, DeepSpeed 0, Trainer 0", "DCP 10, DeepSpeed 10, Trainer 10"},
	{"7: names without a number", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		for i := range 3 {
			write(t, dir, map[string]string{"last.pt": caseFile(fmt.Sprint(i))})
			when := time.Unix(1_800_000_000+int64(i), 0)
			if err := os.Chtimes(filepath.Join(dir, "last.pt"), when, when); err != nil {
				t.Fatal(err)
			}
			settled(t, u)
		}
		return "restored " + restoredFiles(t, b)
	}, "restored 1 files", "restored nothing"},
	{"9: commits of a file that is overwritten in place", func(t *testing.T, u *Uploader, b *mem.Backend, dir string) string {
		for i := range 6 {
			write(t, dir, map[string]string{"last.pt": caseFile(fmt.Sprint(i))})
			if _, err := u.Commit(t.Context(), CommitRequest{Path: "last.pt", Step: int64(i)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 3 {
			_ = u.Sync(t.Context()) // the commits show whether it failed
		}
		return fmt.Sprintf("%d of 6 committed", len(commits(b)))
	}, "6 of 6 committed", "1 of 6 committed"},
}

// Case 8 is TestRenamesAreSeenWithoutScans: of 20 directories that were renamed into place, none
// was committed at once, because no scan had seen the temporary names.
func TestCompletionWithDefaultSettings(t *testing.T) {
	for _, c := range completionCases {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				b, dir := mem.New(), t.TempDir()
				if got := c.do(t, newUploader(t, dir, b, nil), b, dir); got != c.want {
					t.Errorf("got %q, want %q (before: %q)", got, c.want, c.before)
				}
			})
		})
	}
}
