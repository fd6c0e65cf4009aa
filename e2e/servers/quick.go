package servers

import (
	"bytes"
	"crypto/tls"
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
	"runtime/debug"
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
// lists and gives the files of one directory as those of one bucket, with their checksums,
// small ones from memory and large ones by sendfile, and keeps what is written as it came
// (quickwrite.go). It is for figures, of which the server is to be a small part: it takes
// any signature and any checksum, and has connections of its own (quickconn.go).
type Quick struct {
	Endpoint string // its URL
	CAFile   string // of who vouches for it, if it has TLS

	temp     *temp // nil without TLS
	dir      string
	bucket   string
	listener net.Listener
	late     func() time.Duration // by how much the next answer with an object is

	mu      sync.RWMutex // guards all below
	conns   map[net.Conn]bool
	over    bool
	keys    []string // ascending
	files   map[string]quickFile
	count   int // of what was written
	uploads map[string]*quickUpload
	spare   [][]byte // of chunkSize
}

type quickFile struct {
	pieces   []quickPiece // one after the other
	size     int64
	etag     string // with its quotes
	sum      string // CRC-64/NVME, in base64; "" when the writer sent none
	mark     string // the metadata by which stager knows its own
	modified time.Time
	head     []byte // the lines of an answer's head that tell the above
}

// keepUpTo is how long the files are that are kept in memory.
const keepUpTo = 256 << 10

// quickPiece is a file, or what is kept of one.
type quickPiece struct {
	path string
	size int64
	kept []byte // all of it, when it is small
}

// StartQuick serves what is below dir now, and what is written after.
func StartQuick(dir, bucket string) (*Quick, error) {
	return startQuick(dir, bucket, nil, notLate)
}

// StartQuickTLS is StartQuick with TLS.
func StartQuickTLS(dir, bucket string) (q *Quick, err error) {
	made, err := makeTemp("quick")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, made.remove())
		}
	}()
	ca, cert, key, err := certificate(made.path)
	if err != nil {
		return nil, err
	}
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	if q, err = startQuick(dir, bucket, &tls.Config{Certificates: []tls.Certificate{pair}}, notLate); err != nil {
		return nil, err
	}
	q.CAFile, q.temp = ca, made
	return q, nil
}

func notLate() time.Duration { return 0 }

// StartLate is StartQuick, but of the answers with objects one of so many is late, as if
// one of many servers behind one name were busy.
func StartLate(dir, bucket string, oneOf int64, by time.Duration) (*Quick, error) {
	var answers atomic.Int64
	return startQuick(dir, bucket, nil, func() time.Duration {
		if answers.Add(1)%oneOf == 0 {
			return by
		}
		return 0
	})
}

// startQuick has TLS if secure is not nil.
func startQuick(dir, bucket string, secure *tls.Config, late func() time.Duration) (*Quick, error) {
	q := &Quick{dir: dir, bucket: bucket, late: late, conns: make(map[net.Conn]bool), files: make(map[string]quickFile), uploads: make(map[string]*quickUpload)}
	if err := q.Find(); err != nil {
		return nil, err
	}
	var err error
	if q.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil { //nolint:noctx // it does not block
		return nil, err
	}
	q.Endpoint = "http://" + q.listener.Addr().String()
	if secure != nil {
		q.Endpoint = "https://" + q.listener.Addr().String()
		q.listener = tls.NewListener(q.listener, secure)
	}
	go q.accept()
	return q, nil
}

// Env is how clients find it.
func (q *Quick) Env() []string {
	env := []string{"AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + q.Endpoint}
	if q.CAFile != "" {
		env = append(env, "AWS_CA_BUNDLE="+q.CAFile)
	}
	return env
}

// Close ends it, and its connections.
func (q *Quick) Close() error {
	err := q.listener.Close()
	q.mu.Lock()
	q.over = true
	for conn := range q.conns {
		conn.Close() //nolint:errcheck // the client sees that it is over
	}
	q.mu.Unlock()
	return errors.Join(err, q.temp.remove())
}

// Find serves what is below its directory now, in place of all that there was.
func (q *Quick) Find() error {
	q.Drop("")
	q.mu.Lock()
	defer q.mu.Unlock()
	q.spare = nil
	debug.FreeOSMemory()
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
	info, err := file.Stat()
	if err != nil {
		return err
	}
	h := crc64.New(tableNVME)
	var kept bytes.Buffer
	var to io.Writer = h
	if info.Size() <= keepUpTo {
		kept.Grow(int(info.Size()))
		to = io.MultiWriter(h, &kept)
	}
	size, err := io.Copy(to, file)
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
		pieces: []quickPiece{{path, size, kept.Bytes()}}, size: size, modified: info.ModTime(),
		etag: `"` + hex.EncodeToString(sum) + `"`, sum: base64.StdEncoding.EncodeToString(sum),
	}.reported()
	return nil
}

// told is the same with its head.
func (f quickFile) reported() quickFile {
	f.head = fmt.Appendf(nil, "ETag: %s\r\nLast-Modified: %s\r\nContent-Type: application/octet-stream\r\n", f.etag, f.modified.UTC().Format(http.TimeFormat))
	if f.sum != "" {
		f.head = fmt.Appendf(f.head, "X-Amz-Checksum-Crc64nvme: %s\r\nX-Amz-Checksum-Type: FULL_OBJECT\r\n", f.sum)
	}
	if f.mark != "" {
		f.head = fmt.Appendf(f.head, "%s: %s\r\n", quickMark, f.mark)
	}
	return f
}

// answer says what is answered to a request.
func (q *Quick) answer(a *quickAnswer, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	q.mu.RLock()
	file, found := q.files[key]
	q.mu.RUnlock()
	read := r.Method == http.MethodGet || r.Method == http.MethodHead
	switch {
	case bucket != q.bucket:
		a.refuse(http.StatusNotFound, "NoSuchBucket")
	case !read:
		q.write(a, r, key)
	case key == "" && r.URL.Query().Has("versioning"):
		a.xml(struct {
			XMLName xml.Name `xml:"VersioningConfiguration"`
		}{})
	case key == "" && r.URL.Query().Has("uploads"): // all have ended
		a.xml(struct {
			XMLName xml.Name `xml:"ListMultipartUploadsResult"`
		}{})
	case key == "" && r.Method == http.MethodHead:
	case key == "":
		q.list(a, r.URL.Query())
	case !found:
		a.refuse(http.StatusNotFound, "NoSuchKey")
	default:
		time.Sleep(q.late())
		give(a, r, file)
	}
}

// give answers with a file, or the one range of it that is asked for.
func give(a *quickAnswer, r *http.Request, file quickFile) {
	if match := r.Header.Get("If-Match"); match != "" && match != file.etag {
		a.refuse(http.StatusPreconditionFailed, "PreconditionFailed")
		return
	}
	a.head = append(a.head, file.head...)
	a.file, a.to = file, file.size
	if asked := r.Header.Get("Range"); asked != "" {
		var ok bool
		if a.from, a.to, ok = rangeOf(asked, file.size); !ok {
			a.refuse(http.StatusRequestedRangeNotSatisfiable, "InvalidRange")
			return
		}
		a.status = http.StatusPartialContent
		a.head = fmt.Appendf(a.head, "Content-Range: bytes %d-%d/%d\r\n", a.from, a.to-1, file.size)
	}
}

// rangeOf is the bytes from from to before to that "bytes=0-9" or "bytes=10-" means.
func rangeOf(asked string, size int64) (from, to int64, ok bool) {
	asked, ok = strings.CutPrefix(asked, "bytes=")
	first, last, dash := strings.Cut(asked, "-")
	from, err := strconv.ParseInt(first, 10, 64)
	to = size
	if n, failed := strconv.ParseInt(last, 10, 64); last != "" {
		to, err = min(n+1, size), errors.Join(err, failed)
	}
	return from, to, ok && dash && err == nil && from < to
}

// list answers ListObjectsV2, without delimiters.
func (q *Quick) list(a *quickAnswer, query url.Values) {
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
	a.xml(page)
}
