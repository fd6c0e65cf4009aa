package servers

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// tableNVME is that of CRC-64/NVME.
var tableNVME = crc64.MakeTable(0x9a6c9329ac4bc9b5)

// Quick is an S3 server in this process that costs hardly more than the bytes do: it
// lists and gives the files of one folder as those of one bucket, with their checksums,
// by sendfile, and keeps what is written as it came (quickwrite.go). It is for figures,
// of which the server is to be a small part: it takes any signature and any checksum.
type Quick struct {
	Endpoint string // its URL

	dir    string
	bucket string
	server *http.Server
	ended  chan error
	late   func() time.Duration // by how much the next answer with an object is

	mu       sync.RWMutex // guards all below
	keys     []string     // ascending
	files    map[string]quickFile
	received string // the folder of what was written
	count    int    // of the files in it
	uploads  map[string]*quickUpload
}

type quickFile struct {
	pieces   []quickPiece // one after the other
	size     int64
	etag     string // with its quotes
	sum      string // CRC-64/NVME, in base64; "" when the writer sent none
	mark     string // the metadata by which stager knows its own
	modified time.Time
}

// quickPiece is a file of the disk.
type quickPiece struct {
	path string
	size int64
}

// StartQuick serves what is below dir now, and what is written after.
func StartQuick(dir, bucket string) (*Quick, error) {
	return startQuick(dir, bucket, func() time.Duration { return 0 })
}

// StartLate is StartQuick, but of the answers with objects one of so many is late, as if
// one of many servers behind one name were busy.
func StartLate(dir, bucket string, oneOf int64, by time.Duration) (*Quick, error) {
	var answers atomic.Int64
	return startQuick(dir, bucket, func() time.Duration {
		if answers.Add(1)%oneOf == 0 {
			return by
		}
		return 0
	})
}

func startQuick(dir, bucket string, late func() time.Duration) (*Quick, error) {
	q := &Quick{dir: dir, bucket: bucket, late: late, files: make(map[string]quickFile), uploads: make(map[string]*quickUpload), ended: make(chan error, 1)}
	if err := q.Find(); err != nil {
		return nil, err
	}
	var err error
	if q.received, err = os.MkdirTemp("", "quick-"); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	q.Endpoint = "http://" + l.Addr().String()
	q.server = &http.Server{Handler: q, ReadHeaderTimeout: time.Minute}
	go func() { q.ended <- q.server.Serve(l) }()
	return q, nil
}

// Env is how clients find it.
func (q *Quick) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + q.Endpoint}
}

// Close ends it.
func (q *Quick) Close() error {
	err := q.server.Close()
	if ended := <-q.ended; !errors.Is(ended, http.ErrServerClosed) {
		err = errors.Join(err, ended)
	}
	return errors.Join(err, os.RemoveAll(q.received))
}

// Find serves what is below its folder now, in place of all that there was.
func (q *Quick) Find() error {
	q.Drop("")
	q.mu.Lock()
	defer q.mu.Unlock()
	err := filepath.WalkDir(q.dir, q.find)
	slices.Sort(q.keys)
	return err
}

func (q *Quick) find(path string, e fs.DirEntry, err error) error {
	if err != nil || e.IsDir() {
		return err
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	h := crc64.New(tableNVME)
	size, err := io.Copy(h, file)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	key, err := filepath.Rel(q.dir, path)
	if err != nil {
		return err
	}
	sum := h.Sum(nil)
	q.keys = append(q.keys, key)
	q.files[key] = quickFile{
		pieces: []quickPiece{{path, size}}, size: size, modified: info.ModTime(),
		etag: `"` + hex.EncodeToString(sum) + `"`, sum: base64.StdEncoding.EncodeToString(sum),
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (q *Quick) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q.mu.RLock()
	file, found := q.files[key]
	q.mu.RUnlock()
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case bucket != q.bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case !read:
		q.write(w, r, key)
	case key == "" && r.URL.Query().Has("versioning"):
		answer(w, struct {
			XMLName xml.Name `xml:"VersioningConfiguration"`
		}{})
	case key == "" && r.URL.Query().Has("uploads"): // all have ended
		answer(w, struct {
			XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		}{})
	case key == "" && r.Method == http.MethodHead:
	case key == "":
		q.list(w, r.URL.Query())
	case !found:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	default:
		if by := q.late(); by > 0 {
			select {
			case <-time.After(by):
			case <-r.Context().Done():
				return
			}
		}
		give(w, r, file)
	}
}

// give sends a file, or the one range of it that is asked for.
func give(w http.ResponseWriter, r *http.Request, file quickFile) {
	h := w.Header()
	h["Etag"] = []string{file.etag}
	h.Set("Last-Modified", file.modified.UTC().Format(http.TimeFormat))
	h.Set("Content-Type", "application/octet-stream")
	if file.sum != "" {
		h.Set("X-Amz-Checksum-Crc64nvme", file.sum)
		h.Set("X-Amz-Checksum-Type", "FULL_OBJECT")
	}
	if file.mark != "" {
		h.Set(quickMark, file.mark)
	}
	if match := r.Header.Get("If-Match"); match != "" && match != file.etag {
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	from, to, status := int64(0), file.size, http.StatusOK
	if asked := r.Header.Get("Range"); asked != "" {
		last := file.size - 1
		if n, err := fmt.Sscanf(asked, "bytes=%d-%d", &from, &last); n == 0 || err != nil && n != 1 || from >= file.size {
			refuse(w, http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		to, status = min(last+1, file.size), http.StatusPartialContent
		h.Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", from, to-1, file.size))
	}
	h.Set("Content-Length", strconv.FormatInt(to-from, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	begin := int64(0)
	for _, p := range file.pieces {
		end := begin + p.size
		if from < end && to > begin && p.send(w, max(from-begin, 0), min(to, end)-begin) != nil {
			return // the client sees that it is cut
		}
		begin = end
	}
}

func (p quickPiece) send(w io.Writer, from, to int64) error {
	f, err := os.Open(p.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return err
	}
	_, err = io.CopyN(w, f, to-from)
	return err
}

// list answers ListObjectsV2, without delimiters.
func (q *Quick) list(w http.ResponseWriter, query url.Values) {
	type entry struct {
		Key, LastModified, ETag string
		Size                    int64
		StorageClass            string
	}
	var page struct {
		XMLName                             xml.Name `xml:"ListBucketResult"`
		Name, Prefix                        string
		KeyCount, MaxKeys                   int
		EncodingType, NextContinuationToken string `xml:",omitempty"`
		IsTruncated                         bool
		Contents                            []entry
	}
	q.mu.RLock()
	defer q.mu.RUnlock()
	prefix := query.Get("prefix")
	from := max(query.Get("continuation-token"), query.Get("start-after"))
	page.Name, page.Prefix, page.MaxKeys, page.EncodingType = q.bucket, prefix, 1000, query.Get("encoding-type")
	if n, err := strconv.Atoi(query.Get("max-keys")); err == nil {
		page.MaxKeys = min(page.MaxKeys, n)
	}
	i, there := slices.BinarySearch(q.keys, max(prefix, from))
	if there && from >= prefix {
		i++
	}
	for ; i < len(q.keys) && strings.HasPrefix(q.keys[i], prefix); i++ {
		if len(page.Contents) == page.MaxKeys {
			page.IsTruncated, page.NextContinuationToken = true, q.keys[i-1]
			break
		}
		key, file := q.keys[i], q.files[q.keys[i]]
		if page.EncodingType == "url" {
			key = strings.ReplaceAll(url.QueryEscape(key), "%2F", "/")
		}
		page.Contents = append(page.Contents, entry{key, file.modified.UTC().Format("2006-01-02T15:04:05.000Z"), file.etag, file.size, "STANDARD"})
	}
	page.KeyCount = len(page.Contents)
	answer(w, page)
}

func answer(w http.ResponseWriter, v any) {
	text, err := xml.Marshal(v)
	if err != nil {
		refuse(w, http.StatusInternalServerError, "InternalError")
		return
	}
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, xml.Header)
	w.Write(text) //nolint:errcheck // the client sees that it is cut
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "%s<Error><Code>%s</Code><Message>%s</Message></Error>", xml.Header, code, code)
}
