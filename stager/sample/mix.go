package sample

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"

	"github.com/stager-dev/stager/stager/internal/shuffle"
)

// shard is a leased shard. The fields with JSON names are part of the state.
type shard struct {
	Epoch int    `json:"epoch"`
	Pos   int    `json:"pos"`
	Lease string `json:"lease"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	Size  int64  `json:"size"`
	Done  bool   `json:"done,omitempty"` // every file with its samples is acknowledged

	file    *os.File // nil if no file needs it any more
	samples []span   // shuffled
	picked  int      // number of samples already planned
	last    int      // position of the last file that contains any of them
}

// part is a sample in a file.
type part struct {
	from *shard
	span
}

// file is a planned file.
type file struct {
	parts  []part
	size   int64
	before []mark // the open shards before it was planned
}

// mark is an open shard and the number of its samples that were picked.
type mark struct {
	Pos    int `json:"pos"`
	Picked int `json:"drawn"`
}

// key returns the key of a random number generator.
func (c Config) key(of string, epoch, pos int) [sha256.Size]byte {
	text := []byte("stager sample 1 " + of + "\n")
	for _, n := range []int64{c.Seed, int64(epoch), int64(pos)} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	return sha256.Sum256(text)
}

// shuffle shuffles the samples of a shard.
func (c Config) shuffle(s *shard) {
	shuffle.Shuffle(s.samples, rand.NewChaCha8(c.key("shard", s.Epoch, s.Pos)))
}

// shuffleTries is how often another shard is picked, if the next sample of the first has the same
// name as the previous sample.
const shuffleTries = 16

// pickOne picks a sample from the open shards. It returns false if all picked samples have the name
// of the previous one.
func pickOne(r *rand.ChaCha8, open []*shard, before uint64) (part, bool) {
	for range shuffleTries {
		s := open[shuffle.Uint64N(uint64(len(open)), r)]
		next := s.samples[s.picked]
		if next.key == 0 || next.key != before {
			s.picked++
			return part{s, next}, true
		}
	}
	return part{}, false
}

// marks returns the marks of the open shards.
func marks(open []*shard) []mark {
	all := make([]mark, len(open))
	for i, s := range open {
		all[i] = mark{s.Pos, s.picked}
	}
	return all
}

// name returns a digest of the file's parts.
func (f *file) name() string {
	sum := sha256.New()
	for _, p := range f.parts {
		var line []byte
		for _, n := range []int64{int64(p.from.Epoch), int64(p.from.Pos), p.off, p.end} {
			line = binary.BigEndian.AppendUint64(line, uint64(n))
		}
		sum.Write(line) // never fails
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}
