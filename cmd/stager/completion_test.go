package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCompletion(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"train/a.tar", "train/b.tar", "trial", "o\ndd"} {
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	root := parser(t, new(cli)).Model.Node
	for _, c := range []struct{ line, want string }{
		{"res", "restore"},
		{"comp", "completion"}, // "complete" is for scripts
		{"manifests w", "webhook"},
		{"help res", "restore"},
		{"help manifests w", "webhook"},
		{"ls --retr", "--retry-for"},
		{"ls --log-lev", "--log-level"},
		{"ls --output ", "table json yaml"},
		{"ls --output=j", "--output=json"},
		{"ls -o t", "table"},
		{"ls s", "s3:// sftp:// smb://"},
		{"ls --retry-for 5s s3", "s3://"},
		{"ls file://" + dir + "/tra", "file://" + dir + "/train/"},
		{"ls file://" + dir + "/train/", "file://" + dir + "/train/a.tar file://" + dir + "/train/b.tar"},
		{"ls file://" + dir + "/o", ""}, // a name that a terminal must not get
		{"ls s3://", ""},
		{"ls nonsense://x/", ""},
		{"completion z", "zsh"},
		{"push ./", ""}, // the shell knows files
		{"prefetch s3://b/ /da", ""},
		{"prefetch a b ", ""},
		{"run -f plan.yaml -- train --", ""},
	} {
		words := strings.Split(c.line, " ")
		place := completionPlace(root, words[:len(words)-1])
		got := place.candidates(t.Context(), words[len(words)-1])
		for i, candidate := range got {
			got[i], _, _ = strings.Cut(candidate, "\t")
		}
		slices.Sort(got)
		want := strings.Fields(c.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("stager %s: got %q, want %q", c.line, got, want)
		}
	}
}
