package servers

import (
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Of what is written the bytes of each request become a file of its own, or are kept where
// they are few, and an object is a list of them: nothing is copied to put parts together.

// quickMark is the metadata by which stager tells its own object.
const quickMark = "X-Amz-Meta-Stager-Write"

// quickUpload is an upload in parts.
type quickUpload struct {
	mark  string
	parts map[int]quickFile
}

func (q *Quick) write(a *quickAnswer, r *http.Request, key string) {
	query := r.URL.Query()
	id := query.Get("uploadId")
	switch {
	case r.Method == http.MethodPut && id != "":
		var number int
		if _, err := fmt.Sscan(query.Get("partNumber"), &number); err != nil {
			a.refuse(http.StatusBadRequest, "InvalidArgument")
			return
		}
		q.receive(a, r, func(part quickFile) bool {
			up := q.uploads[id]
			if up != nil {
				up.parts[number] = part
			}
			return up != nil
		})
	case r.Method == http.MethodPut:
		if q.taken(a, r, key) {
			return
		}
		q.receive(a, r, func(file quickFile) bool {
			q.setLocked(key, file)
			return true
		})
	case r.Method == http.MethodPost && query.Has("uploads"):
		q.mu.Lock()
		q.count++
		id = fmt.Sprint(q.count)
		q.uploads[id] = &quickUpload{r.Header.Get(quickMark), make(map[int]quickFile)}
		q.mu.Unlock()
		a.xml(struct {
			XMLName  xml.Name `xml:"InitiateMultipartUploadResult"`
			UploadId string
		}{UploadId: id})
	case r.Method == http.MethodPost && id != "":
		if !q.taken(a, r, key) {
			q.complete(a, r, key, id)
		}
	case r.Method == http.MethodDelete && id != "":
		q.mu.Lock()
		if up := q.uploads[id]; up != nil {
			for _, part := range up.parts {
				q.dropPieces(part)
			}
		}
		delete(q.uploads, id)
		q.mu.Unlock()
		a.status = http.StatusNoContent
	case r.Method == http.MethodDelete:
		q.drop(func(k string) bool { return k == key })
		a.status = http.StatusNoContent
	default:
		a.refuse(http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

// taken heeds If-None-Match.
func (q *Quick) taken(a *quickAnswer, r *http.Request, key string) bool {
	q.mu.RLock()
	_, there := q.files[key]
	q.mu.RUnlock()
	if taken := there && r.Header.Get("If-None-Match") == "*"; !taken {
		return false
	}
	a.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
	return true
}

// receive makes a piece of a body; keep is called with the lock held.
func (q *Quick) receive(a *quickAnswer, r *http.Request, keep func(quickFile) bool) {
	q.mu.Lock()
	q.count++
	piece, etag := quickPiece{path: filepath.Join(q.received, fmt.Sprint(q.count))}, fmt.Sprintf(`"%032d"`, q.count)
	q.mu.Unlock()
	if err := piece.fill(r.Body, r.ContentLength); err != nil {
		a.refuse(http.StatusInternalServerError, "InternalError")
		return
	}
	file := quickFile{
		pieces: []quickPiece{piece}, size: piece.size, modified: time.Now(), etag: etag,
		sum: r.Header.Get("X-Amz-Checksum-Crc64nvme"), mark: r.Header.Get(quickMark),
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if !keep(file) {
		q.dropPieces(file)
		a.refuse(http.StatusNotFound, "NoSuchUpload")
		return
	}
	a.head = fmt.Appendf(a.head, "ETag: %s\r\n", etag)
}

// fill takes a body of so many bytes, or of -1 when nobody knows.
func (p *quickPiece) fill(from io.Reader, size int64) error {
	if size >= 0 && size <= keepUpTo {
		p.size, p.kept = size, make([]byte, size)
		_, err := io.ReadFull(from, p.kept)
		return err
	}
	f, err := os.Create(p.path)
	if err != nil {
		return err
	}
	p.size, err = io.CopyBuffer(struct{ io.Writer }{f}, from, make([]byte, 256<<10))
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

func (q *Quick) complete(a *quickAnswer, r *http.Request, key, id string) {
	var asked struct {
		Part []struct{ PartNumber int }
	}
	if err := xml.NewDecoder(r.Body).Decode(&asked); err != nil {
		a.refuse(http.StatusBadRequest, "MalformedXML")
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	up := q.uploads[id]
	if up == nil {
		a.refuse(http.StatusNotFound, "NoSuchUpload")
		return
	}
	q.count++
	file := quickFile{modified: time.Now(), etag: fmt.Sprintf(`"%032d-%d"`, q.count, len(asked.Part)), mark: up.mark, sum: r.Header.Get("X-Amz-Checksum-Crc64nvme")}
	for _, p := range asked.Part {
		part, ok := up.parts[p.PartNumber]
		if !ok {
			a.refuse(http.StatusBadRequest, "InvalidPart")
			return
		}
		file.pieces, file.size = append(file.pieces, part.pieces...), file.size+part.size
	}
	delete(q.uploads, id)
	q.setLocked(key, file)
	a.xml(struct {
		XMLName                         xml.Name `xml:"CompleteMultipartUploadResult"`
		Key, ETag                       string
		ChecksumCRC64NVME, ChecksumType string `xml:",omitempty"`
	}{Key: key, ETag: file.etag, ChecksumCRC64NVME: file.sum, ChecksumType: "FULL_OBJECT"})
}

func (q *Quick) setLocked(key string, file quickFile) {
	if old, ok := q.files[key]; ok {
		q.dropPieces(old)
	} else {
		i, _ := slices.BinarySearch(q.keys, key)
		q.keys = slices.Insert(q.keys, i, key)
	}
	q.files[key] = file.told()
}

// Drop removes all keys that begin with prefix.
func (q *Quick) Drop(prefix string) {
	q.drop(func(key string) bool { return strings.HasPrefix(key, prefix) })
}

func (q *Quick) drop(which func(key string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.keys = slices.DeleteFunc(q.keys, func(key string) bool {
		gone := which(key)
		if gone {
			q.dropPieces(q.files[key])
			delete(q.files, key)
		}
		return gone
	})
}

// dropPieces removes what was written, and nothing that was served from the beginning.
func (q *Quick) dropPieces(file quickFile) {
	for _, p := range file.pieces {
		if p.kept == nil && strings.HasPrefix(p.path, q.received) {
			_ = os.Remove(p.path) // Close removes the folder
		}
	}
}
