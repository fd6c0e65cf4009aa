package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
)

// saver is the part of the trainer that writes checkpoints.
type saver struct {
	binary, out, socket string
	saved               []string
	sums                map[string][sha256.Size]byte // file of the newest checkpoint → its bytes
}

// at says at which parts of the training a checkpoint is written.
var at = []float64{0.25, 0.75}

const (
	files    = 8
	fileSize = 2 << 20
)

// train writes a checkpoint when it is time for one and says that it is complete.
func (s *saver) train(acked, total int) error {
	if len(s.saved) == len(at) || float64(acked) < at[len(s.saved)]*float64(total) {
		return nil
	}
	step := fmt.Sprintf("step-%d", acked)
	dir := filepath.Join(s.out, step)
	if err := os.MkdirAll(filepath.Join(dir, "shards"), 0o755); err != nil {
		return err
	}
	s.sums = make(map[string][sha256.Size]byte, files)
	noise := rand.NewChaCha8([32]byte{byte(acked)})
	for i := range files {
		name := fmt.Sprintf("shards/%02d.bin", i)
		weights := make([]byte, fileSize)
		_, _ = noise.Read(weights) // it never fails
		if err := os.WriteFile(filepath.Join(dir, name), weights, 0o644); err != nil {
			return err
		}
		s.sums[name] = sha256.Sum256(weights)
	}
	if _, err := run(context.Background(), nil, s.binary, "commit", "ckpt", dir, "--socket", s.socket); err != nil {
		return err
	}
	say("checkpoint %s is complete, and the trainer deletes its own copy", step)
	s.saved = append(s.saved, step)
	return os.RemoveAll(dir)
}

// check restores the newest checkpoint and compares it byte for byte.
func (s *saver) check(ctx context.Context, work string, env []string) (string, error) {
	say("stager restore: the newest checkpoint")
	to := filepath.Join(work, "restored")
	if _, err := run(ctx, env, s.binary, "restore", "--quiet", "s3://demo/runs/", to); err != nil {
		return "", err
	}
	found := 0
	err := filepath.WalkDir(to, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == "RESTORED.json" {
			return err
		}
		rel, err := filepath.Rel(to, path)
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		want, known := s.sums[filepath.ToSlash(rel)]
		if got := sha256.Sum256(body); !known || !bytes.Equal(got[:], want[:]) {
			return fmt.Errorf("the restored %s is not what was saved", rel)
		}
		found++
		return nil
	})
	if err == nil && found != len(s.sums) {
		err = fmt.Errorf("%d of the checkpoint's %d files were restored", found, len(s.sums))
	}
	return fmt.Sprintf("%d committed, the newest (%s) restored and equal in all %d files", len(s.saved), s.saved[len(s.saved)-1], found), err
}
