package servers

import (
	"crypto/md5"
	"encoding"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"hash"
	"net"
	"net/http"
	"sort"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// What a Keys holds: so many files in a directory, each of so many bytes.
const (
	keysPerDirectory = 1000
	keysPerPage      = 1000
	keySize          = 3 << 10
	keyTail          = 16 // bytes at the end of an object, which are its number
)

// Keys is an S3 server in this process with any number of small objects, which take no memory and no
// disk: keys and contents are computed from the numbers of the objects. It is for the figures of long
// listings, so each page of one takes a time. It accepts any signature, and no writes.
type Keys struct {
	Endpoint string // its URL

	n       int
	page    time.Duration
	pages   atomic.Int64
	body    []byte // of all objects, without the tail
	begun   []byte // the state of MD5 after body
	server  *http.Server
	written time.Time
}

// StartKeys serves n objects as those of the bucket "bench"; each page of a listing takes at least so long.
func StartKeys(n int, page time.Duration) (*Keys, error) {
	k := &Keys{n: n, page: page, body: make([]byte, keySize-keyTail), written: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	for i := range k.body {
		k.body[i] = byte(i * 31)
	}
	h := md5.New()
	h.Write(k.body)
	var err error
	if k.begun, err = h.(encoding.BinaryMarshaler).MarshalBinary(); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it does not block
	if err != nil {
		return nil, err
	}
	k.Endpoint = "http://" + listener.Addr().String()
	k.server = &http.Server{Handler: http.HandlerFunc(k.answer), ReadHeaderTimeout: time.Minute}
	go k.server.Serve(listener) //nolint:errcheck // until Close
	return k, nil
}

// Env is how clients find it.
func (k *Keys) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=any", "AWS_SECRET_ACCESS_KEY=any", "AWS_REGION=us-east-1", "AWS_ENDPOINT_URL=" + k.Endpoint}
}

// Close ends it, and its connections.
func (k *Keys) Close() error { return k.server.Close() }

// Pages is how many pages of listings were requested so far.
func (k *Keys) Pages() int64 { return k.pages.Load() }

// FrontCoded is the number of bytes of all keys, of each without what it shares with the one before.
func (k *Keys) FrontCoded() (sum int64) {
	var last, key []byte
	for i := range k.n {
		key = appendKey(key[:0], i)
		shared := 0
		for shared < min(len(last), len(key)) && last[shared] == key[shared] {
			shared++
		}
		sum += int64(len(key) - shared)
		last, key = key, last
	}
	return sum
}

// appendKey appends the key of an object. The keys ascend with the numbers.
func appendKey(b []byte, i int) []byte {
	b = appendNumber(append(b, "data/part-"...), i/keysPerDirectory)
	return append(appendNumber(append(b, "/img_"...), i%keysPerDirectory), ".jpg"...)
}

// appendNumber appends seven digits.
func appendNumber(b []byte, n int) []byte {
	for unit := 1_000_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+n/unit%10))
	}
	return b
}

// after is the number of the first object whose key is greater than key.
func (k *Keys) after(key string) int {
	var b []byte
	return sort.Search(k.n, func(i int) bool { b = appendKey(b[:0], i); return string(b) > key })
}

// tail is the end of an object's content.
func tail(i int) string { return fmt.Sprintf("%0*d", keyTail, i) }

// etag is the MD5 of an object's content, in quotes. h is any MD5.
func (k *Keys) etag(h hash.Hash, i int) string {
	if err := h.(encoding.BinaryUnmarshaler).UnmarshalBinary(k.begun); err != nil {
		panic(err) // it is that of MarshalBinary
	}
	h.Write([]byte(tail(i)))
	return `"` + hex.EncodeToString(h.Sum(nil)) + `"`
}

func (k *Keys) answer(w http.ResponseWriter, r *http.Request) {
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	refuse := func(status int, code string) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "%s<Error><Code>%s</Code></Error>", xml.Header, code)
	}
	switch {
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		refuse(http.StatusForbidden, "AccessDenied")
	case bucket != "bench":
		refuse(http.StatusNotFound, "NoSuchBucket")
	case key == "" && query.Has("versioning"):
		fmt.Fprint(w, xml.Header, "<VersioningConfiguration/>")
	case key == "" && query.Has("uploads"):
		fmt.Fprint(w, xml.Header, "<ListMultipartUploadsResult/>")
	case key == "" && r.Method == http.MethodHead:
	case key == "":
		k.pages.Add(1)
		page, err := k.list(listRequest{
			prefix: query.Get("prefix"), delimiter: query.Get("delimiter"),
			token: query.Get("continuation-token"), after: query.Get("start-after"), most: query.Get("max-keys"),
		})
		if err != nil {
			refuse(http.StatusBadRequest, "InvalidArgument")
			return
		}
		time.Sleep(k.page)
		w.Header().Set("Content-Type", "application/xml")
		w.Write(page) //nolint:errcheck // the client sees that it is cut
	default:
		i := k.after(key) - 1
		if i < 0 || string(appendKey(nil, i)) != key {
			refuse(http.StatusNotFound, "NoSuchKey")
			return
		}
		w.Header().Set("ETag", k.etag(md5.New(), i))
		http.ServeContent(w, r, key, k.written, strings.NewReader(string(k.body)+tail(i)))
	}
}

// listRequest is the query of a ListObjectsV2.
type listRequest struct{ prefix, delimiter, token, after, most string }

// list is a page. The keys need no escapes, so they are the same in each encoding-type.
func (k *Keys) list(r listRequest) ([]byte, error) {
	most := keysPerPage
	if r.most != "" {
		n, err := strconv.Atoi(r.most)
		if err != nil || n < 0 {
			return nil, fmt.Errorf("max-keys is %q", r.most)
		}
		most = min(most, n)
	}
	i := max(k.after(r.token), k.after(r.after))
	if r.token == "" && r.after == "" {
		i = 0
	}
	if r.delimiter != "" && strings.HasSuffix(r.token, r.delimiter) { // the last of the page before was a common prefix
		i = max(i, k.after(r.token+"\xff"))
	}
	if r.prefix != "" {
		i = max(i, k.from(r.prefix))
	}
	h := md5.New()
	modified := k.written.Format("2006-01-02T15:04:05.000Z")
	b := append([]byte(xml.Header), "<ListBucketResult><Name>bench</Name>"...)
	count, last := 0, ""
	for i < k.n {
		key := string(appendKey(nil, i))
		rest, below := strings.CutPrefix(key, r.prefix)
		if !below {
			break
		}
		if count == most {
			b = fmt.Appendf(b, "<IsTruncated>true</IsTruncated><NextContinuationToken>%s</NextContinuationToken>", last)
			break
		}
		count++
		if at := strings.Index(rest, r.delimiter); r.delimiter != "" && at >= 0 {
			last = key[:len(r.prefix)+at+len(r.delimiter)]
			b = fmt.Appendf(b, "<CommonPrefixes><Prefix>%s</Prefix></CommonPrefixes>", last)
			i = k.after(last + "\xff")
			continue
		}
		last = key
		b = append(append(append(append(b, "<Contents><Key>"...), key...), "</Key><LastModified>"...), modified...)
		b = append(append(b, "</LastModified><ETag>"...), k.etag(h, i)...)
		b = strconv.AppendInt(append(b, "</ETag><Size>"...), keySize, 10)
		b = append(b, "</Size><StorageClass>STANDARD</StorageClass></Contents>"...)
		i++
	}
	return fmt.Appendf(b, "<KeyCount>%d</KeyCount></ListBucketResult>", count), nil
}

// from is the number of the first object whose key is key or greater.
func (k *Keys) from(key string) int {
	i := k.after(key)
	if i > 0 && string(appendKey(nil, i-1)) == key {
		i--
	}
	return i
}
