package trial

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// PackTree packs every file below root into so many WebDataset shards in dir, dealt
// out in turn: each file is a sample, its bytes under .src and its path under .json.
// It returns the shards' names and digests, and how many bytes they have.
func PackTree(root, dir string, shards int) (digests map[string]string, bytes int64, err error) {
	samples := make([][]string, shards)
	n := 0
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			samples[n%shards] = append(samples[n%shards], path)
			n++
		}
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	if n < shards {
		return nil, 0, fmt.Errorf("%s has %d files, too few for %d shards", root, n, shards)
	}
	digests = make(map[string]string, shards)
	for i, files := range samples {
		shard, err := packShard(root, files)
		if err != nil {
			return nil, 0, err
		}
		name := fmt.Sprintf("source-%05d.tar", i)
		if err := os.WriteFile(filepath.Join(dir, name), shard, 0o644); err != nil {
			return nil, 0, err
		}
		sum := sha256.Sum256(shard)
		digests[name] = hex.EncodeToString(sum[:])
		bytes += int64(len(shard))
	}
	return digests, bytes, nil
}

func packShard(root string, files []string) ([]byte, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	add := func(name string, body []byte) error {
		if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(body))}); err != nil {
			return err
		}
		_, err := archive.Write(body)
		return err
	}
	for i, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return nil, err
		}
		about, err := json.Marshal(map[string]string{"path": filepath.ToSlash(rel)})
		if err != nil {
			return nil, err
		}
		if err := errors.Join(add(fmt.Sprintf("%06d.src", i), body), add(fmt.Sprintf("%06d.json", i), about)); err != nil {
			return nil, err
		}
	}
	err := archive.Close()
	return out.Bytes(), err
}

// PackNoise writes so many shards of size bytes that no two share.
func PackNoise(dir string, shards int, size int) (digests map[string]string, err error) {
	digests = make(map[string]string, shards)
	for i := range shards {
		name := fmt.Sprintf("noise-%05d.tar", i)
		body := bytes.Repeat(fmt.Appendf(nil, "%08d", i), (size+7)/8)[:size]
		if err := os.WriteFile(filepath.Join(dir, name), body, 0o644); err != nil {
			return nil, err
		}
		sum := sha256.Sum256(body)
		digests[name] = hex.EncodeToString(sum[:])
	}
	return digests, nil
}

// PackLoose writes bundles × files small files of size bytes into directories of dir, and
// returns the digests of the bundles that so many files each make.
func PackLoose(dir string, bundles, files, size int) (digests map[string]string, err error) {
	digests = make(map[string]string, bundles)
	for b := range bundles {
		h := sha256.New()
		for f := range files {
			name := fmt.Sprintf("%03d/%06d.jpg", b/3, b*files+f) // some directories lie in several bundles
			body := bytes.Repeat([]byte(name), size/len(name)+1)[:size]
			path := filepath.Join(dir, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, body, 0o644)); err != nil {
				return nil, err
			}
			noteFile(h, name, body)
		}
		digests[fmt.Sprintf("bundle-%06d", b)] = hex.EncodeToString(h.Sum(nil))
	}
	return digests, nil
}

// PackArchives writes so many compressed archives of files of size bytes, each file in a directory
// of its own beside an empty one, and returns the digests of the trees that they make.
func PackArchives(dir string, archives, files, size int) (digests map[string]string, err error) {
	digests = make(map[string]string, archives)
	for a := range archives {
		name, h := fmt.Sprintf("archive-%05d", a), sha256.New()
		var packed bytes.Buffer
		squeezed := gzip.NewWriter(&packed)
		archive := tar.NewWriter(squeezed)
		for f := range files {
			in, body := fmt.Sprintf("%03d", f), bytes.Repeat(fmt.Appendf(nil, "%04d%04d", a, f), (size+7)/8)[:size]
			err = errors.Join(err,
				archive.WriteHeader(&tar.Header{Name: in + "/empty/", Typeflag: tar.TypeDir, Mode: 0o755}),
				archive.WriteHeader(&tar.Header{Name: in + "/file", Mode: 0o644, Size: int64(size)}))
			if _, failed := archive.Write(body); failed != nil {
				err = errors.Join(err, failed)
			}
			noteFile(h, in+"/file", body)
		}
		err = errors.Join(err, archive.Close(), squeezed.Close(), os.WriteFile(filepath.Join(dir, name+".tar.gz"), packed.Bytes(), 0o644))
		digests[name] = hex.EncodeToString(h.Sum(nil))
	}
	return digests, err
}
