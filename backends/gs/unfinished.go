package gs

import (
	"context"
	"crypto/md5" // ETags of parts use it
	"encoding/hex"
	"encoding/json"
	"encoding/xml"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

var _ backends.Sweeper = (*bucket)(nil)

// resumeToken is what another process needs to continue an upload.
type resumeToken struct {
	ID   string `json:"id"`
	At   string `json:"at"`
	Mark string `json:"mark"`
}

// Token implements objectstore.Uploader.
func (u *upload) Token() (id, token string, err error) {
	text, err := json.Marshal(resumeToken{u.id, u.at, u.mark})
	return u.id, string(text), err
}

// Resume lists the parts in the store. An upload under the final name cannot be published
// conditionally.
func (u *upload) Resume(ctx context.Context, text string) (bool, error) {
	var t resumeToken
	if u.b.withoutXML.Load() || json.Unmarshal([]byte(text), &t) != nil || t.ID == "" || isTemporary(t.At) != u.conditional() || !u.conditional() && t.At != u.key {
		return false, nil
	}
	there, err := u.b.parts(ctx, t.At, t.ID)
	if err != nil {
		if refusal(err).status == http.StatusNotFound {
			return false, nil
		}
		return false, u.b.explain("create", u.key, err)
	}
	u.id, u.at, u.mark, u.there = t.ID, t.At, t.Mark, there
	return true, nil
}

// has reports whether the store already has the part with the bytes of src: its ETag is their MD5.
func (u *upload) has(number int, sum []byte, src *backends.Part) (part, bool, error) {
	there, ok := u.there[number]
	if !ok || there.Size != src.Size() {
		return part{}, false, nil
	}
	h := md5.New()
	if err := objectstore.Digest(h, src.Unpaced()); err != nil {
		return part{}, false, err
	}
	same := strings.EqualFold(strings.Trim(there.ETag, `"`), hex.EncodeToString(h.Sum(nil)))
	return part{there.ETag, src.Size(), sum}, same, nil
}

// listed is a part in the store.
type listed struct {
	PartNumber   int
	LastModified time.Time
	ETag         string
	Size         int64
}

// parts returns the parts of an upload in the store.
func (b *bucket) parts(ctx context.Context, key, id string) (map[int]listed, error) {
	parts := make(map[int]listed)
	for marker := 0; ; {
		q := b.inXML(http.MethodGet, key)
		q.query.Set("uploadId", id)
		q.query.Set("max-parts", strconv.Itoa(perPage))
		q.query.Set("part-number-marker", strconv.Itoa(marker))
		var out struct {
			XMLName              xml.Name `xml:"ListPartsResult"`
			IsTruncated          bool
			NextPartNumberMarker int
			Part                 []listed
		}
		if _, err := b.client.xml(ctx, q, &out); err != nil {
			return nil, err
		}
		for _, p := range out.Part {
			parts[p.PartNumber] = p
		}
		if !out.IsTruncated || out.NextPartNumberMarker <= marker {
			return parts, nil
		}
		marker = out.NextPartNumberMarker
	}
}

// Sweep implements backends.Sweeper. It aborts abandoned multipart uploads and deletes complete ones
// that were never published.
func (b *bucket) Sweep(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	if err := b.sweepUnpublished(ctx, prefix, over); err != nil {
		return err
	}
	key, id := "", ""
	for !b.withoutXML.Load() {
		page, err := b.uploads(ctx, prefix, key, id)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		if page.XMLName.Local == listOfObjects {
			return nil
		}
		for _, found := range page.Upload {
			if page.EncodingType == "url" {
				if plain, err := url.QueryUnescape(found.Key); err == nil {
					found.Key = plain
				}
			}
			if err := b.sweepUpload(ctx, found, over); err != nil {
				return b.explain("sweep", found.Key, err)
			}
		}
		if page.EncodingType == "url" {
			if plain, err := url.QueryUnescape(page.NextKeyMarker); err == nil {
				page.NextKeyMarker = plain
			}
		}
		if !page.IsTruncated || page.NextKeyMarker == key && page.NextUploadIDMarker == id {
			return nil
		}
		key, id = page.NextKeyMarker, page.NextUploadIDMarker
	}
	return nil
}

// sweepUnpublished deletes objects under temporary names.
func (b *bucket) sweepUnpublished(ctx context.Context, prefix string, over func(backends.Orphan) bool) error {
	for token := ""; ; {
		items, _, next, err := b.page(ctx, selection{prefix: prefix, glob: "**" + temporary + "*"}, token)
		if err != nil {
			return b.explain("sweep", prefix, err)
		}
		for _, found := range items {
			if !isTemporary(found.Name) || !over(backends.Orphan{Key: written(found.Name), Size: found.Size, Touched: found.TimeCreated, Marked: true}) {
				continue
			}
			if err := b.Delete(ctx, found.Name); err != nil {
				return err
			}
		}
		if token = next; token == "" {
			return nil
		}
	}
}

// written returns the key that an upload was to be published as.
func written(at string) string {
	if isTemporary(at) {
		return at[:strings.LastIndex(at, temporary)]
	}
	return at
}

// underway is a multipart upload in the store.
type underway struct {
	Key       string
	UploadID  string `xml:"UploadId"`
	Initiated time.Time
}

// uploadPage is a page of the list of multipart uploads.
type uploadPage struct {
	XMLName            xml.Name
	EncodingType       string
	IsTruncated        bool
	NextKeyMarker      string
	NextUploadIDMarker string `xml:"NextUploadIdMarker"`
	Upload             []underway
}

// listOfObjects is the response to a request for the multipart uploads of a server that has none, and
// ignores the parameter.
const listOfObjects = "ListBucketResult"

// uploads requests one page of the multipart uploads below prefix. XML cannot represent control
// characters, so keys are URL-encoded.
func (b *bucket) uploads(ctx context.Context, prefix, key, id string) (page uploadPage, err error) {
	q := b.inXML(http.MethodGet, "")
	for name, value := range map[string]string{
		"uploads": "", "prefix": prefix, "max-uploads": strconv.Itoa(perPage), "encoding-type": "url",
	} {
		q.query.Set(name, value)
	}
	if key != "" {
		q.query.Set("key-marker", key)
		q.query.Set("upload-id-marker", id)
	}
	_, err = b.client.xml(ctx, q, &page)
	switch name := page.XMLName.Local; {
	case lacksXML(err):
		page.XMLName.Local, err = listOfObjects, nil
	case err == nil && name != "ListMultipartUploadsResult" && name != listOfObjects:
		err = strange()
	}
	return page, err
}

// sweepUpload aborts one upload if over returns true.
func (b *bucket) sweepUpload(ctx context.Context, found underway, over func(backends.Orphan) bool) error {
	parts, err := b.parts(ctx, found.Key, found.UploadID)
	if err != nil {
		if refusal(err).status == http.StatusNotFound {
			return nil // it has ended
		}
		return err
	}
	left := backends.Orphan{Key: written(found.Key), ID: found.UploadID, Touched: found.Initiated, Marked: isTemporary(found.Key)}
	for _, p := range parts {
		left.Size += p.Size
		if p.LastModified.After(left.Touched) {
			left.Touched = p.LastModified
		}
	}
	if !over(left) {
		return nil
	}
	return (&upload{b: b, key: found.Key, at: found.Key, id: found.UploadID}).Drop(ctx)
}
