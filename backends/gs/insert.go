package gs

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"slices"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// lacksXML reports whether an error response to a request of the XML API shows that the server has no
// such API: where there is one, its errors are in XML.
func lacksXML(err error) bool {
	a := refusal(err)
	if a.form == formXML || a.page || a.code == expectsTLS {
		return false
	}
	switch a.status {
	case http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return true
	}
	return false
}

// hold keeps a part for insert. It reads the part here, paced by the Store, to compute the checksum.
func (u *upload) hold(number int, src *backends.Part) error {
	h := backends.CRC32C.New()
	to, from := io.Writer(h), src.Unpaced()
	var text bytes.Buffer
	if u.copies {
		to = io.MultiWriter(h, &text)
	}
	if err := objectstore.Digest(to, src); err != nil {
		return err
	}
	if u.copies {
		from = section(text.Bytes())
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.held[number] = from
	u.parts[number] = part{size: src.Size(), sum: h.Sum(nil)}
	return nil
}

// insert creates the object by one request of the JSON API, from small or from the parts that were
// held.
func (u *upload) insert(ctx context.Context, small *backends.Part) (backends.Object, error) {
	text, err := json.Marshal(map[string]any{
		"contentType": contentType, "crc32c": base64.StdEncoding.EncodeToString(u.sum()), "metadata": map[string]string{markName: u.mark},
	})
	if err != nil {
		return backends.Object{}, err
	}
	border := rand.Text()
	body := sections{
		section([]byte("--" + border + "\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n" + string(text) + "\r\n--" + border + "\r\nContent-Type: " + contentType + "\r\n\r\n")),
	}
	if small != nil {
		body = append(body, small)
	}
	for _, number := range slices.Sorted(maps.Keys(u.held)) {
		body = append(body, u.held[number])
	}
	body = append(body, section([]byte("\r\n--"+border+"--\r\n")))
	q := u.b.inJSON(http.MethodPost, "o")
	q.path = append([]string{"upload"}, q.path...)
	q.query.Set("uploadType", "multipart")
	q.query.Set("name", u.key)
	q.query.Set("fields", fields)
	if u.conditional() {
		q.query.Set("ifGenerationMatch", u.generation())
	}
	q.header.Set("Content-Type", "multipart/related; boundary="+border)
	q.body = backends.NewPart(body, 0, body.size())
	var out resource
	if err := u.b.client.json(ctx, q, &out); err != nil {
		if a := refusal(err); a.status == http.StatusNotFound && !a.page {
			a.code = "NoSuchBucket" // nothing else can be missing
		}
		return backends.Object{}, err
	}
	u.b.withoutXML.Store(true)
	return out.object(), nil
}

func section(text []byte) *backends.Part {
	return backends.NewPart(bytes.NewReader(text), 0, int64(len(text)))
}

// sections are read as one.
type sections []*backends.Part

func (s sections) size() (n int64) {
	for _, one := range s {
		n += one.Size()
	}
	return n
}

// ReadAt implements io.ReaderAt.
func (s sections) ReadAt(p []byte, off int64) (n int, err error) {
	for _, one := range s {
		if off >= one.Size() {
			off -= one.Size()
			continue
		}
		want := int(min(int64(len(p)-n), one.Size()-off))
		got, err := one.ReadAt(p[n:n+want], off)
		if n += got; err != nil {
			return n, err
		}
		if n == len(p) {
			return n, nil
		}
		off = 0
	}
	return n, io.EOF
}
