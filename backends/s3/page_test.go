package s3

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/stager-dev/stager/backends"
)

// xmlPage is a page for encoding/xml.
type xmlPage struct {
	XMLName  xml.Name `xml:"ListBucketResult"`
	Contents []struct {
		Key, Size, ETag, LastModified string
	}
	CommonPrefixes                                   []struct{ Prefix string }
	IsTruncated, NextContinuationToken, EncodingType string
}

// byLibrary is readPage implemented with encoding/xml.
func byLibrary(text []byte) (p page, err error) {
	var x xmlPage
	if err := xml.Unmarshal(text, &x); err != nil {
		return p, err
	}
	set := func(name, value string) {
		if err == nil && value != "" {
			_, err = p.set(name, []byte(value), false)
		}
	}
	set("IsTruncated", x.IsTruncated)
	set("NextContinuationToken", x.NextContinuationToken)
	for _, c := range x.Contents {
		obj := backends.Object{Key: c.Key}
		for name, value := range map[string]string{"Size": c.Size, "ETag": c.ETag, "LastModified": c.LastModified} {
			if err == nil && value != "" {
				err = setField(&obj, name, []byte(value))
			}
		}
		p.objects = append(p.objects, obj)
	}
	for _, c := range x.CommonPrefixes {
		p.prefixes = append(p.prefixes, c.Prefix)
	}
	if err == nil {
		err = p.decode(x.EncodingType == "url")
	}
	return p, err
}

const anEntry = `<Contents><Key>train/%06d.jpg</Key><LastModified>2026-11-21T06:00:00.000Z</LastModified><ETag>&quot;0123456789abcdef0123456789abcdef&quot;</ETag>` +
	`<ChecksumAlgorithm>CRC64NVME</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType><Size>51200</Size><StorageClass>STANDARD</StorageClass></Contents>`

// aPage returns a page with the given number of entries, as AWS sends it.
func aPage(entries int) []byte {
	b := []byte(xml.Header + `<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>train/</Prefix>` +
		`<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken><KeyCount>1000</KeyCount>` +
		`<MaxKeys>1000</MaxKeys><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>`)
	for i := range entries {
		b = fmt.Appendf(b, anEntry, i)
	}
	return append(b, "</ListBucketResult>"...)
}

func TestPagesMatchEncodingXML(t *testing.T) {
	for _, text := range []string{
		string(aPage(1000)),
		`<ListBucketResult/>`,
		"\ufeff<?xml version='1.0'?>\r\n<!-- by hand -->\n<ListBucketResult a='>' b=\"'/>'\" >\n</ListBucketResult >trailing",
		`<s3:ListBucketResult xmlns:s3="x"><s3:Contents><s3:Key>a</s3:Key><s3:Size>1</s3:Size></s3:Contents></s3:ListBucketResult>`,
		`<ListBucketResult><Contents><Key>a&amp;b&#10;&#x1F600;&apos;</Key><Size>1</Size></Contents></ListBucketResult>`,
		"<ListBucketResult><Contents><Key>a\rb\r\nc</Key><Size>1</Size></Contents></ListBucketResult>",
		`<ListBucketResult><Contents><Key>a<![CDATA[<&>]]>b<!-- - -->c</Key><Size>1</Size></Contents></ListBucketResult>`,
		`<ListBucketResult><Contents><Owner><ID>Key</ID><Key>wrong</Key></Owner><Key>a</Key><Size>1</Size></Contents></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>b</Key><Size>1</Size><Key>a</Key></Contents><EncodingType/><Key>c</Key></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>a%2Bb+c</Key><Size>1</Size></Contents><EncodingType>url</EncodingType></ListBucketResult>`,
		`<ListBucketResult><Prefix>a</Prefix><CommonPrefixes><Prefix>a%20b/</Prefix></CommonPrefixes><CommonPrefixes><Prefix>c/</Prefix></CommonPrefixes><EncodingType>url</EncodingType></ListBucketResult>`,
		`<ListBucketResult><Contents><Key>a</Key><Size>1</Size></Contents><IsTruncated>true</IsTruncated><NextContinuationToken>&lt;</NextContinuationToken></ListBucketResult>`,
	} {
		got, err := readPage([]byte(text))
		want, wrong := byLibrary([]byte(strings.TrimPrefix(text, "\ufeff")))
		if err != nil || wrong != nil || !cmp.Equal(got, want, cmp.AllowUnexported(page{})) {
			t.Errorf("%.300s: got %+.300v, %v; want %+.300v, %v", text, got, err, want, wrong)
		}
	}
}

func TestPageErrors(t *testing.T) {
	whole := string(aPage(2))
	for i := range whole { // truncated anywhere
		if got, err := readPage([]byte(whole[:i])); err == nil {
			t.Fatalf("%q is read as %+v, want an error", whole[:i], got)
		}
	}
	for _, text := range []string{
		"", "data", "<html><body><br></body></html>", `{"objects":[]}`, "<Error><Code>SlowDown</Code></Error>",
		"<!DOCTYPE x []><ListBucketResult/>",
		"<ListBucketResult></ListBucket>", "</ListBucketResult>", "<ListBucketResult><></></ListBucketResult>",
		"<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key><Size>many</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a</Key><Size>1</Size><LastModified>today</LastModified></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a&nbsp;b</Key><Size>1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a&amp</Key><Size>1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>a<b>b</b></Key><Size>1</Size></Contents></ListBucketResult>",
		"<ListBucketResult><Contents><Key>%zz</Key><Size>1</Size></Contents><EncodingType>url</EncodingType></ListBucketResult>",
		"<ListBucketResult><IsTruncated>perhaps</IsTruncated></ListBucketResult>",
	} {
		if got, err := readPage([]byte(text)); err == nil {
			t.Errorf("%s is read as %+v, want an error", text, got)
		}
	}
}

// FuzzPage checks that readPage never disagrees with encoding/xml.
func FuzzPage(f *testing.F) {
	f.Add(aPage(2))
	f.Add([]byte(`<a:ListBucketResult b='>'><Contents><Key>&#x41;<![CDATA[]]]>&amp;</Key><Size>1</Size></Contents><!----><x/></a:ListBucketResult>`))
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := readPage(bytes.Clone(text))
		if err != nil {
			return
		}
		want, wrong := byLibrary(text)
		if wrong == nil && !cmp.Equal(got, want, cmp.AllowUnexported(page{})) {
			t.Errorf("%q: got %+v, want %+v", text, got, want)
		}
	})
}

func BenchmarkPage(b *testing.B) {
	text := aPage(1000)
	for name, read := range map[string]func([]byte) (page, error){"own": readPage, "library": byLibrary} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if p, err := read(text); err != nil || len(p.objects) != 1000 {
					b.Fatal(len(p.objects), err)
				}
			}
		})
	}
}

// A page is requested only after the previous one was consumed, and a long listing is complete.
func TestListOfManyPages(t *testing.T) {
	const pages, each = 5, 1000
	var asked atomic.Int64
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		n, _ := strconv.Atoi(strings.TrimPrefix(q.Get("continuation-token"), "to ken/+"))
		if q.Get("list-type") != "2" || q.Get("prefix") != "a b/" || int64(n) != asked.Load() {
			t.Errorf("asked for %s as page %d", r.URL, asked.Load())
		}
		sent := asked.Add(1)
		fmt.Fprint(w, "<ListBucketResult>")
		for i := range each {
			fmt.Fprintf(w, "<Contents><Key>a b/%06d</Key><Size>1</Size><LastModified>2026-11-21T06:00:00Z</LastModified></Contents>", n*each+i)
		}
		if sent < pages {
			fmt.Fprintf(w, "<IsTruncated>true</IsTruncated><NextContinuationToken>to ken/+%d</NextContinuationToken>", sent)
		}
		fmt.Fprint(w, "</ListBucketResult>")
	})
	n := 0
	for obj, err := range b.List(t.Context(), "a b/") {
		if err != nil || obj.Key != fmt.Sprintf("a b/%06d", n) || !obj.ModTime.Equal(time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)) {
			t.Fatalf("object %d is %+v, %v", n, obj, err)
		}
		if got, want := asked.Load(), int64(n/each+1); got != want {
			t.Fatalf("%d pages were asked for before object %d, want %d", got, n, want)
		}
		n++
	}
	if n != pages*each {
		t.Errorf("%d objects, want %d", n, pages*each)
	}
}
