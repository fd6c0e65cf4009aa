package e2e

import (
	"bufio"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
)

// fake FILE puts a server in the place of the real one that holds, in whichever
// bucket is asked for, what the file lists. Each line is a key as a Go string, a
// size, and for some how it goes wrong:
//
//	"a/../../b" 10
//	"moving"    10 changes   is another version when it is read
//	"torn"      10 cut       has bytes in its first half only
//
// A file system cannot hold such keys, and no honest server has such objects.
func fakeCmd(ts *testscript.TestScript, neg bool, args []string) {
	usage(ts, !neg && len(args) == 1, "fake FILE")
	var objects []fakeObject
	for lines := bufio.NewScanner(strings.NewReader(ts.ReadFile(args[0]))); lines.Scan(); {
		quoted, err := strconv.QuotedPrefix(lines.Text())
		ts.Check(err)
		key, err := strconv.Unquote(quoted)
		ts.Check(err)
		rest := strings.Fields(lines.Text()[len(quoted):])
		usage(ts, len(rest) == 1 || len(rest) == 2, `fake FILE, with lines: "key" SIZE [changes|cut]`)
		o := fakeObject{key: key, size: int64(number(ts, rest[0]))}
		if len(rest) == 2 {
			o.fault = rest[1]
		}
		objects = append(objects, o)
	}
	slices.SortFunc(objects, func(a, b fakeObject) int { return strings.Compare(a.key, b.key) })
	server := httptest.NewServer(fakeS3(objects))
	s := of(ts)
	s.fakes = append(s.fakes, server)
	ts.Setenv("AWS_ENDPOINT_URL_S3", server.URL)
}

type fakeObject struct {
	key   string
	size  int64
	fault string
}

const fakeTag = `"of-the-listing"`

// fakeS3 knows what a prefetch asks: lists, heads and ranges.
type fakeS3 []fakeObject

func (f fakeS3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, err := url.PathUnescape(strings.TrimPrefix(r.URL.EscapedPath(), "/"))
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	_, key, _ := strings.Cut(path, "/")
	if key == "" {
		f.list(w, r.URL.Query().Get("prefix"))
		return
	}
	i := slices.IndexFunc(f, func(o fakeObject) bool { return o.key == key })
	switch {
	case i < 0:
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case f[i].fault == "changes" && r.Header.Get("If-Match") == fakeTag:
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		f[i].serve(w, r)
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>as the script says</Message></Error>", code)
}

func (f fakeS3) list(w http.ResponseWriter, prefix string) {
	type entry struct {
		Key          string
		Size         int64
		ETag         string
		LastModified string
	}
	page := struct {
		XMLName      xml.Name `xml:"ListBucketResult"`
		EncodingType string
		IsTruncated  bool
		Contents     []entry
	}{EncodingType: "url"}
	for _, o := range f {
		if strings.HasPrefix(o.key, prefix) {
			page.Contents = append(page.Contents, entry{url.QueryEscape(o.key), o.size, fakeTag, "2026-01-02T03:04:05.000Z"})
		}
	}
	w.Header().Set("Content-Type", "application/xml")
	_ = xml.NewEncoder(w).Encode(page) // a client that is gone needs no page
}

// serve sends the object, or the range of it that is asked for: the letter x, over
// and over.
func (o fakeObject) serve(w http.ResponseWriter, r *http.Request) {
	first, last, status := int64(0), o.size-1, http.StatusOK
	if text := r.Header.Get("Range"); text != "" {
		if _, err := fmt.Sscanf(text, "bytes=%d-%d", &first, &last); err != nil {
			w.WriteHeader(http.StatusRequestedRangeNotSatisfiable)
			return
		}
		status = http.StatusPartialContent
		w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", first, last, o.size))
	}
	w.Header().Set("ETag", fakeTag)
	w.Header().Set("Content-Length", strconv.FormatInt(last-first+1, 10))
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return
	}
	n := last - first + 1
	if o.fault == "cut" {
		n = max(min(n, o.size/2-first), 0)
	}
	_, _ = io.CopyN(w, xs{}, n) // a client that is gone needs no bytes
}

// xs is the letter x without end.
type xs struct{}

func (xs) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
