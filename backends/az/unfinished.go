package az

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/blockblob"
	"github.com/Azure/azure-sdk-for-go/sdk/storage/azblob/container"

	"github.com/stager-dev/stager/backends"
)

var _ backends.Sweeper = (*store)(nil)

// block is one block of ours. Its ID, before base64, is stager-UPLOAD-NUMBER-TIME-CHECKSUM. IDs of
// one blob must have the same length.
type block struct {
	id     string // as in requests
	upload string
	number int
	sent   time.Time // by the clock of the writer
	sum    string    // CRC-64, hexadecimal
	size   int64
}

const (
	idFormat     = "stager-%s-%05d-%08x-%s"
	uploadLength = 16
	idLength     = len("stager-") + uploadLength + len("-00000-00000000-") + 16
)

func newBlock(upload string, number int, size int64, sum []byte) block {
	b := block{upload: upload, number: number, sent: time.Now(), sum: hex.EncodeToString(sum), size: size}
	b.id = base64.StdEncoding.EncodeToString(fmt.Appendf(nil, idFormat, upload, number, uint32(b.sent.Unix()), b.sum))
	return b
}

// parseBlock returns the block with an ID; false if it is not ours.
func parseBlock(id string, size int64) (block, bool) {
	text, err := base64.StdEncoding.DecodeString(id)
	part := strings.Split(string(text), "-")
	if err != nil || len(text) != idLength || len(part) != 5 || part[0] != "stager" || len(part[1]) != uploadLength {
		return block{}, false
	}
	number, err1 := strconv.Atoi(part[2])
	sent, err2 := strconv.ParseUint(part[3], 16, 32)
	return block{id, part[1], number, time.Unix(int64(sent), 0), part[4], size}, err1 == nil && err2 == nil
}

func (b block) hasSum(sum []byte) bool { return b.sum == hex.EncodeToString(sum) }

// uncommitted returns the blocks of a name that are ours, and how many others it has.
func (s *store) uncommitted(ctx context.Context, key string) (ours []block, others int, err error) {
	client, err := s.blob(ctx, key)
	if err != nil {
		return nil, 0, err
	}
	res, err := client.GetBlockList(ctx, blockblob.BlockListTypeUncommitted, nil)
	if err != nil {
		return nil, 0, err
	}
	for _, found := range res.UncommittedBlocks {
		if b, ok := parseBlock(value(found.Name), value(found.Size)); ok {
			ours = append(ours, b)
		} else {
			others++
		}
	}
	return ours, others, nil
}

// resumeToken is what another process needs to continue an upload.
type resumeToken struct {
	ID string `json:"id"`
}

// Token implements objectstore.Uploader.
func (u *upload) Token() (id, token string, err error) {
	text, err := json.Marshal(resumeToken{u.id})
	return u.id, string(text), err
}

// Resume lists the blocks in the store.
func (u *upload) Resume(ctx context.Context, text string) (bool, error) {
	var t resumeToken
	if json.Unmarshal([]byte(text), &t) != nil || len(t.ID) != uploadLength {
		return false, nil
	}
	ours, _, err := u.s.uncommitted(ctx, u.key)
	if err != nil {
		if statusOf(err) == http.StatusNotFound {
			return false, nil
		}
		return false, u.s.explain("create", u.key, err)
	}
	there := make(map[int]block)
	for _, b := range ours {
		if b.upload == t.ID {
			there[b.number] = b
		}
	}
	if len(there) == 0 {
		return false, nil
	}
	u.id, u.there, u.begun = t.ID, there, true
	return true, nil
}

// Drop discards the blocks in the store, unless another upload has blocks of the same name.
func (u *upload) Drop(ctx context.Context) error {
	ours, others, err := u.s.uncommitted(ctx, u.key)
	if err != nil {
		if statusOf(err) == http.StatusNotFound {
			return nil
		}
		return u.s.explain("abort", u.key, err)
	}
	foreign := slices.ContainsFunc(ours, func(b block) bool { return b.upload != u.id })
	if len(ours) == 0 || others > 0 || foreign {
		return nil
	}
	if err := u.s.discard(ctx, u.key); err != nil {
		return u.s.explain("abort", u.key, err)
	}
	return nil
}

// discard removes all blocks of a name that has no blob: it commits an empty blob that List hides,
// and deletes it. A name with a blob stays as it is.
func (s *store) discard(ctx context.Context, key string) error {
	client, err := s.blob(ctx, key)
	if err != nil {
		return err
	}
	res, err := client.CommitBlockList(ctx, []string{}, &blockblob.CommitBlockListOptions{
		Metadata: map[string]*string{metaRemoved: pointer("true")}, AccessConditions: ifNothing(),
	})
	switch statusOf(err) {
	case http.StatusConflict, http.StatusPreconditionFailed:
		return nil // it has a blob
	}
	if err == nil {
		err = s.remove(ctx, key, version(res.ETag))
	}
	switch statusOf(err) {
	case http.StatusNotFound, http.StatusPreconditionFailed:
		return nil // somebody else has removed or replaced it
	}
	return err
}

// Sweep implements backends.Sweeper. It removes the blocks of abandoned uploads of stager.
func (s *store) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	for item, err := range s.items(ctx, prefix, true) {
		if err == nil && listed(item).Size == 0 {
			err = s.sweepName(ctx, item, over)
		}
		if err != nil {
			return s.explain("sweep", prefix, err)
		}
	}
	return nil
}

// sweepName removes what an empty name of a listing has, if over returns true for all of it.
func (s *store) sweepName(ctx context.Context, item *container.BlobItem, over func(backends.Orphan) bool) error {
	obj := listed(item)
	if meta(item.Metadata, metaRemoved) != "" { // its writer was killed between two requests
		if !over(backends.Orphan{Key: obj.Key, Touched: obj.ModTime, Marked: true}) {
			return nil
		}
		err := s.remove(ctx, obj.Key, obj.Version)
		if statusOf(err) == http.StatusNotFound || statusOf(err) == http.StatusPreconditionFailed {
			return nil
		}
		return err
	}
	ours, others, err := s.uncommitted(ctx, obj.Key)
	if statusOf(err) == http.StatusNotFound || err == nil && len(ours) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, _, err := s.head(ctx, obj.Key); classify(err) != backends.NotExist {
		return err // an empty blob, whose blocks cannot be removed, or an error
	}
	all := true
	for _, left := range orphans(obj, ours) {
		all = over(left) && all
	}
	if !all || others > 0 {
		return nil
	}
	return s.discard(ctx, obj.Key)
}

// orphans returns the uploads of blocks.
func orphans(of backends.Object, blocks []block) (all []backends.Orphan) {
	for _, b := range blocks {
		i := slices.IndexFunc(all, func(o backends.Orphan) bool { return o.ID == b.upload })
		if i < 0 {
			i = len(all)
			all = append(all, backends.Orphan{Key: of.Key, ID: b.upload, Marked: true})
		}
		all[i].Size += b.size
		if b.sent.After(all[i].Touched) {
			all[i].Touched = b.sent
		}
	}
	return all
}
