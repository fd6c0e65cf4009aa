package servers

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"
)

// What is written stays in memory, where it came: an object is a list of pieces, and nothing
// is copied to put parts together. The memory of what was removed is used again, since new
// memory costs as much as the bytes do.

// chunkSize is how long pieces are, but for the last of a request.
const chunkSize = 1 << 20

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
	pieces, size, err := q.take(r.Body, r.ContentLength)
	if err != nil {
		a.refuse(http.StatusInternalServerError, "InternalError")
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.count++
	file := quickFile{
		pieces: pieces, size: size, modified: time.Now(), etag: fmt.Sprintf(`"%032d"`, q.count),
		sum: r.Header.Get("X-Amz-Checksum-Crc64nvme"), mark: r.Header.Get(quickMark),
	}
	if !keep(file) {
		q.dropPieces(file)
		a.refuse(http.StatusNotFound, "NoSuchUpload")
		return
	}
	a.head = fmt.Appendf(a.head, "ETag: %s\r\n", file.etag)
}

// take takes a body of so many bytes, or of -1 when nobody knows.
func (q *Quick) take(from io.Reader, size int64) (pieces []quickPiece, n int64, err error) {
	for n != size {
		var p []byte
		if left := size - n; size >= 0 && left < chunkSize {
			p = make([]byte, left)
		} else {
			p = q.chunk()
		}
		m, err := io.ReadFull(from, p)
		n += int64(m)
		pieces = append(pieces, quickPiece{kept: p[:m], size: int64(m)})
		switch {
		case size < 0 && (errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)):
			return pieces, n, nil
		case err != nil:
			return nil, 0, err
		}
	}
	return pieces, n, nil
}

// chunk is memory for a piece.
func (q *Quick) chunk() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	last := len(q.spare) - 1
	if last < 0 {
		return make([]byte, chunkSize)
	}
	p := q.spare[last]
	q.spare = q.spare[:last]
	return p
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
	q.files[key] = file.reported()
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

// dropPieces has the memory of what was written used again.
func (q *Quick) dropPieces(file quickFile) {
	for _, p := range file.pieces {
		if cap(p.kept) == chunkSize {
			q.spare = append(q.spare, p.kept[:chunkSize])
		}
	}
}
