package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/hub"
	"github.com/stager-dev/stager/backends/conformance/live"
	"github.com/stager-dev/stager/e2e/servers"
)

// hubFiles are those of the fake's repository, with the names and sizes that are difficult.
var hubFiles = map[string]int64{"model.safetensors": 3<<20 + 5, "onnx/model.onnx": 1 << 20, "a/b c#d?e%f.txt": 20, "a.txt": 0, "a-b": 5, "ü.bin": 7}

// huggingFace runs a Python program with huggingface_hub and transformers.
func huggingFace(t *testing.T, program string, env ...string) string {
	t.Helper()
	python, err := servers.HuggingFace()
	live.Require(t, "hf", err)
	cmd := exec.CommandContext(t.Context(), python.Python, "-c", program)
	cmd.Env = append(os.Environ(), "PYTHONPATH="+python.Path, "HF_HOME="+t.TempDir(), "HF_HUB_DISABLE_XET=1", "HF_HUB_DISABLE_TELEMETRY=1", "USE_TORCH=0")
	cmd.Env = append(cmd.Env, env...)
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, log.Bytes())
	}
	return out.String()
}

// downloads returns the requests for files, without those that look only.
func downloads(h *hub.Hub) (paths []string) {
	for _, r := range h.Requests() {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, "/resolve/") {
			paths = append(paths, r.URL.Path)
		}
	}
	return paths
}

// The Hub's own client takes the fake for a Hub.
func TestHubFakeServesHuggingFaceClient(t *testing.T) {
	h, dir := hub.Start(t, maps.Clone(hubFiles)), t.TempDir()
	out := huggingFace(t, `
import json, os, huggingface_hub as hub
api = hub.HfApi()
print(json.dumps(sorted(api.list_repo_files("org/name"))))
print(json.dumps(sorted(e.path for e in api.list_repo_tree("org/name", recursive=True) if hasattr(e, "blob_id"))))
hub.snapshot_download("org/name", local_dir=os.environ["OUT"])
`, "HF_ENDPOINT="+h.URL, "HF_TOKEN="+hub.Token, "OUT="+dir)
	want := slices.Sorted(maps.Keys(hubFiles))
	for line := range strings.Lines(out) {
		var got []string
		if err := json.Unmarshal([]byte(line), &got); err != nil || !slices.Equal(got, want) {
			t.Errorf("huggingface_hub lists %q, %v; want %q", got, err, want)
		}
	}
	for key, size := range hubFiles {
		got, err := os.ReadFile(filepath.Join(dir, key))
		if err != nil || !bytes.Equal(got, conformance.ContentsOf(key, size).Bytes()) {
			t.Errorf("%q: %v, or other bytes", key, err)
		}
	}
}

const (
	modelConfig   = `{"model_type": "bert", "hidden_size": 24, "num_attention_heads": 2, "num_hidden_layers": 1, "vocab_size": 7}`
	tokenizerFile = `{"version":"1.0","added_tokens":[],"normalizer":null,"pre_tokenizer":{"type":"Whitespace"},"post_processor":null,"decoder":null,` +
		`"model":{"type":"WordLevel","vocab":{"[UNK]":0,"stager":1,"brings":2,"data":3},"unk_token":"[UNK]"}}`
	tokenizerConfig = `{"tokenizer_class": "PreTrainedTokenizerFast", "unk_token": "[UNK]"}`
)

// What stager prefetched is loaded without a network, and stager and huggingface_hub continue in a cache of the other.
func TestHubCacheIsThatOfHuggingFace(t *testing.T) {
	h, cache := hub.Start(t, maps.Clone(hubFiles)), t.TempDir()
	h.Add("config.json", modelConfig)
	h.Add("tokenizer.json", tokenizerFile)
	h.Add("tokenizer_config.json", tokenizerConfig)
	prefetch := func(dir string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), world.stager, "prefetch", "hf://org/name@main", dir, "--layout", "hf-cache")
		cmd.Env = append(os.Environ(), "HF_ENDPOINT="+h.URL, "HF_TOKEN="+hub.Token)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	prefetch(cache)
	out := huggingFace(t, `
import huggingface_hub as hub
from transformers import AutoConfig, AutoTokenizer
print(hub.snapshot_download("org/name").rsplit("/", 1)[1])
print(open(hub.hf_hub_download("org/name", "onnx/model.onnx"), "rb").read(4).hex())
info = hub.scan_cache_dir()
print(len(info.warnings), [r.repo_id for r in info.repos], sum(r.nb_files for r in info.repos), sorted(r for i in info.repos for r in i.refs))
print(AutoConfig.from_pretrained("org/name").hidden_size, AutoTokenizer.from_pretrained("org/name")("stager brings data")["input_ids"])
`, "HF_HUB_OFFLINE=1", "HF_HUB_CACHE="+cache, "HF_ENDPOINT=http://127.0.0.1:1")
	first := conformance.ContentsOf("onnx/model.onnx", 4).Bytes()
	want := hub.Commit + "\n" + fmt.Sprintf("%x", first) + "\n0 ['org/name'] 9 ['main']\n24 [1, 2, 3]\n"
	if out != want {
		t.Errorf("offline: got\n%swant\n%s", out, want)
	}

	// A plan's input has the same cache, whole on each of two nodes.
	planned := t.TempDir()
	file := filepath.Join(t.TempDir(), "plan.yaml")
	text := `{apiVersion: stager.dev/v1alpha1, kind: StagePlan, metadata: {name: m}, spec: {inputs: [{name: model, source: "hf://org/name@main", path: ` + planned + `, layout: hf-cache}]}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), world.stager, "run", "-f", file, "--prefetch", "only", "--socket", filepath.Join(t.TempDir(), "s"))
	cmd.Env = append(os.Environ(), "HF_ENDPOINT="+h.URL, "HF_TOKEN="+hub.Token, "STAGER_INDEX=1", "STAGER_COUNT=2")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, dir := range []string{"blobs", "snapshots/" + hub.Commit} {
		want, werr := os.ReadDir(filepath.Join(cache, "models--org--name", dir))
		got, err := os.ReadDir(filepath.Join(planned, "models--org--name", dir))
		if err != nil || werr != nil || len(got) != len(want) {
			t.Errorf("by a plan, %s has %d entries, %v, %v, want %d", dir, len(got), err, werr, len(want))
		}
	}

	before := len(downloads(h))
	online := []string{"HF_ENDPOINT=" + h.URL, "HF_TOKEN=" + hub.Token}
	huggingFace(t, `import huggingface_hub; huggingface_hub.snapshot_download("org/name")`, append(online, "HF_HUB_CACHE="+cache)...)
	if got := downloads(h)[before:]; len(got) > 0 {
		t.Errorf("huggingface_hub downloads %q again, which stager prefetched", got)
	}

	theirs := t.TempDir()
	huggingFace(t, `import huggingface_hub; huggingface_hub.snapshot_download("org/name")`, append(online, "HF_HUB_CACHE="+theirs)...)
	blobs := func() (all []os.FileInfo) {
		paths, err := filepath.Glob(filepath.Join(theirs, "models--org--name/blobs/*"))
		for _, path := range paths {
			info, serr := os.Stat(path)
			if serr != nil {
				err = serr
			}
			all = append(all, info)
		}
		if err != nil || len(all) != 9 {
			t.Fatalf("%d blobs, %v; want 9", len(all), err)
		}
		return all
	}
	old := blobs()
	prefetch(theirs)
	for i, now := range blobs() {
		if !os.SameFile(old[i], now) {
			t.Errorf("stager replaced the blob %s of huggingface_hub", now.Name())
		}
	}
}
