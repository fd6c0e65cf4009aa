package sample

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"os"

	"github.com/stager-dev/stager/stager/internal/shuffle"
)

// shard is a leased shard. What is marked for JSON is kept in the state.
type shard struct {
	Epoch int    `json:"epoch"`
	Pos   int    `json:"pos"`
	Lease string `json:"lease"`
	Name  string `json:"name"`
	Path  string `json:"path"`
	Size  int64  `json:"size"`
	Done  bool   `json:"done,omitempty"` // every file with samples of it is acknowledged

	file    *os.File // nil when no file that is wanted needs it
	samples []span   // shuffled
	picked  int      // so many of these are planned
	last    int      // the position of the last file that has any of them
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

// mark is an open shard and how far it is drawn.
type mark struct {
	Pos    int `json:"pos"`
	Picked int `json:"drawn"`
}

// key is that of a stream of random numbers.
func (c Config) key(of string, epoch, pos int) [sha256.Size]byte {
	text := []byte("stager sample 1 " + of + "\n")
	for _, n := range []int64{c.Seed, int64(epoch), int64(pos)} {
		text = binary.BigEndian.AppendUint64(text, uint64(n))
	}
	return sha256.Sum256(text)
}

// shuffle gives a shard its order.
func (c Config) shuffle(s *shard) {
	shuffle.Shuffle(s.samples, rand.NewChaCha8(c.key("shard", s.Epoch, s.Pos)))
}

// triesOfDraw is how often another shard is drawn in place of one whose next sample has the
// name of the sample before it.
const triesOfDraw = 16

// pickOne takes a sample out of the open shards. It is false when all that was drawn has the
// name of the sample before.
func pickOne(r *rand.ChaCha8, open []*shard, before uint64) (part, bool) {
	for range triesOfDraw {
		s := open[shuffle.Uint64N(uint64(len(open)), r)]
		next := s.samples[s.picked]
		if next.key == 0 || next.key != before {
			s.picked++
			return part{s, next}, true
		}
	}
	return part{}, false
}

// marks are the open shards as they stand.
func marks(open []*shard) []mark {
	all := make([]mark, len(open))
	for i, s := range open {
		all[i] = mark{s.Pos, s.picked}
	}
	return all
}

// name is a digest of what a file is made of.
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
