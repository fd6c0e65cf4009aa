package checkpoint

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
)

// Some files tell by themselves whether they were written to their end. This is what
// speaks of a file whose writer was killed: nobody has it open, and nothing changes
// any more.

// ofWeights are the endings of files that are never empty once they are written.
var ofWeights = []string{".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".pkl", ".npz", ".distcp", ".h5", ".keras"}

// torn tells why a file cannot have been written to its end, or "".
func torn(f *os.File, name string, size int64) (string, error) {
	ext := path.Ext(name)
	if size == 0 && slices.Contains(ofWeights, ext) {
		return name + " is empty", nil
	}
	head := make([]byte, min(size, 8))
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", err
	}
	switch {
	case ext == ".safetensors":
		return tornSafetensors(f, name, size, head)
	case bytes.HasPrefix(head, []byte("PK\x03\x04")), size < 4 && bytes.HasPrefix([]byte("PK\x03\x04"), head) && size > 0:
		return tornZip(f, name, size)
	case path.Base(name) == ".metadata": // a pickle, which ends with a full stop
		last := make([]byte, 1)
		if _, err := f.ReadAt(last, size-1); err != nil || last[0] != '.' {
			return name + " is not whole", err
		}
	}
	return "", nil
}

// tornZip: torch.save, numpy and Keras write zip archives, whose directory stands at
// the end, behind it at most a comment.
func tornZip(f *os.File, name string, size int64) (string, error) {
	tail := make([]byte, min(size, 22+math.MaxUint16))
	if _, err := f.ReadAt(tail, size-int64(len(tail))); err != nil {
		return "", err
	}
	if !bytes.Contains(tail, []byte("PK\x05\x06")) {
		return name + " is a zip archive without its end, as torch.save leaves it when it is killed", nil
	}
	return "", nil
}

// tornSafetensors: the length of a header, the header in JSON, and as many bytes as it
// says.
func tornSafetensors(f *os.File, name string, size int64, head []byte) (string, error) {
	short := name + " is shorter than its header says"
	if len(head) < 8 {
		return short, nil
	}
	n := binary.LittleEndian.Uint64(head)
	if n > 100<<20 { // as the format limits it: this is something else
		return "", nil
	}
	if int64(n) > size-8 {
		return short, nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 8, int64(n)))
	if err != nil {
		return "", err
	}
	var tensors map[string]json.RawMessage
	if json.Unmarshal(text, &tensors) != nil {
		return fmt.Sprintf("the header of %s is not whole", name), nil
	}
	var end int64
	for key, raw := range tensors {
		var tensor struct {
			Offsets [2]int64 `json:"data_offsets"`
		}
		if key != "__metadata__" && json.Unmarshal(raw, &tensor) == nil {
			end = max(end, tensor.Offsets[1])
		}
	}
	if end > size-8-int64(n) {
		return short, nil
	}
	return "", nil
}
