package format

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// ofMany matches the name of one of n files: model-00001-of-00003.safetensors.
var ofMany = regexp.MustCompile(`^(.*?)([0-9]{1,6})-of-([0-9]{1,6})(.*)$`)

// MissingParts returns a message about missing files of a set named k-of-n, or "". Names are
// relative paths. Numbers start at 0 or 1.
func MissingParts(names []string) string {
	type group struct{ before, of, after string }
	parts := make(map[group]map[int]bool)
	var order []group
	for _, name := range names {
		if !strings.Contains(name, "-of-") {
			continue
		}
		m := ofMany.FindStringSubmatch(name)
		if m == nil {
			continue
		}
		g := group{m[1], m[3], m[4]}
		if parts[g] == nil {
			parts[g] = make(map[int]bool)
			order = append(order, g)
		}
		k, _ := strconv.Atoi(m[2]) // the pattern allows only digits
		parts[g][k] = true
	}
	for _, g := range order {
		n, _ := strconv.Atoi(g.of) // the pattern allows only digits
		first := 1
		if parts[g][0] {
			first = 0
		}
		found := 0
		for k := range parts[g] {
			if k >= first && k < first+n {
				found++
			}
		}
		if found < n {
			return fmt.Sprintf("%d of the %d files %sK-of-%s%s are there", found, n, g.before, g.of, g.after)
		}
	}
	return ""
}

// IsIndex reports whether a file is the index of a sharded model.
func IsIndex(name string) bool {
	return strings.HasSuffix(name, ".safetensors.index.json") || strings.HasSuffix(name, ".bin.index.json")
}

// Index lists the files of a sharded model.
type Index struct {
	Shards []string // relative to the directory of the index, sorted
	Total  int64    // bytes of all tensors; 0 when the index does not record it
}

// ReadIndex reads an index. The verdict is Incomplete for an index that is truncated or names a
// file outside its directory, and Unknown for an index that is too large to read.
func ReadIndex(r io.ReaderAt, size int64) (Index, Result, error) {
	in := input{r: r, size: size}
	if size > headerLimit {
		return Index{}, unknown, nil
	}
	text, err := in.read(0, size)
	if err != nil {
		return Index{}, unknown, err
	}
	var index struct {
		Metadata struct {
			Total json.Number `json:"total_size"`
		} `json:"metadata"`
		Map map[string]string `json:"weight_map"`
	}
	if json.Unmarshal(text, &index) != nil || index.Map == nil {
		return Index{}, in.incomplete("is no index of shards, or breaks off"), nil
	}
	shards := make(map[string]bool)
	for _, shard := range index.Map {
		if !filepath.IsLocal(shard) || shard == "." || strings.ContainsAny(shard, "\\\x00") {
			return Index{}, in.incomplete("names %.80q, which is not a file next to it", shard), nil
		}
		shards[shard] = true
	}
	total, err := index.Metadata.Total.Int64()
	if err != nil || total < 0 {
		total = 0
	}
	return Index{slices.Sorted(maps.Keys(shards)), total}, whole, nil
}

// Judge returns the verdict on the shards that an index names, judging by their sizes. size
// returns the size of a file beside the index, and whether the file exists.
func (x Index) Judge(size func(name string) (int64, bool)) Result {
	var sum int64
	for _, shard := range x.Shards {
		n, ok := size(shard)
		if !ok {
			return Result{Incomplete, "index", fmt.Sprintf("names %.80q, which is not there yet", shard)}
		}
		if sum += n; sum < 0 {
			return unknown
		}
	}
	if sum < x.Total {
		return Result{Incomplete, "index", fmt.Sprintf("says %d bytes, and its shards have %d", x.Total, sum)}
	}
	return Result{Verdict: Whole, Kind: "index"}
}
