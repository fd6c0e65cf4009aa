package servers

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"encoding/xml"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// The pages of a listing, one after the other, have each key once, with the ETag of its content.
func TestKeysAreListedAndRead(t *testing.T) {
	const n = 3456
	k, err := StartKeys(n, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close() // nothing was written
	get := func(path string) (int, []byte, http.Header) {
		t.Helper()
		resp, err := http.Get(k.Endpoint + path) //nolint:noctx // on this machine
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, text, resp.Header
	}
	list := func(query url.Values) (keys, prefixes []string) {
		t.Helper()
		for {
			var page struct {
				KeyCount              int
				IsTruncated           bool
				NextContinuationToken string
				Contents              []struct {
					Key, ETag string
					Size      int64
				}
				CommonPrefixes []struct{ Prefix string }
			}
			_, text, _ := get("/bench/?" + query.Encode())
			if err := xml.Unmarshal(text, &page); err != nil || page.KeyCount != len(page.Contents)+len(page.CommonPrefixes) || page.KeyCount > 1000 {
				t.Fatalf("got %d keys (%v)", page.KeyCount, err)
			}
			for _, o := range page.Contents {
				keys = append(keys, o.Key)
			}
			for _, p := range page.CommonPrefixes {
				prefixes = append(prefixes, p.Prefix)
			}
			if !page.IsTruncated {
				return keys, prefixes
			}
			query.Set("continuation-token", page.NextContinuationToken)
		}
	}
	all, _ := list(url.Values{"list-type": {"2"}})
	if len(all) != n || all[0] != "data/part-0000000/img_0000000.jpg" || all[n-1] != "data/part-0000003/img_0000455.jpg" || !isAscending(all) {
		t.Errorf("got %d keys from %s to %s", len(all), all[0], all[len(all)-1])
	}
	if keys, prefixes := list(url.Values{"prefix": {"data/"}, "delimiter": {"/"}, "max-keys": {"3"}}); len(keys) != 0 || strings.Join(prefixes, " ") != "data/part-0000000/ data/part-0000001/ data/part-0000002/ data/part-0000003/" {
		t.Errorf("got %d keys and the prefixes %q", len(keys), prefixes)
	}
	if keys, _ := list(url.Values{"prefix": {"data/part-0000003/"}, "delimiter": {"/"}}); len(keys) != 456 {
		t.Errorf("got %d keys of the last directory, want 456", len(keys))
	}
	for after, want := range map[string]int{all[3000]: 455, "data/part-0000002": 1456, "data/part-0000003/img_00004": 56, "z": 0} {
		if keys, _ := list(url.Values{"start-after": {after}}); len(keys) != want {
			t.Errorf("behind %s: got %d keys, want %d", after, len(keys), want)
		}
	}
	for _, key := range []string{all[0], all[1234], all[n-1]} {
		code, text, header := get("/bench/" + key)
		sum := md5.Sum(text)
		if want := strconv.Quote(hex.EncodeToString(sum[:])); code != 200 || len(text) != keySize || header.Get("ETag") != want || !strings.Contains(string(list1(t, get, key)), want) {
			t.Errorf("%s: got %d, %d bytes and the ETag %s, want %s", key, code, len(text), header.Get("ETag"), want)
		}
	}
	for _, path := range []string{"/bench/data/part-0000003/img_0000456.jpg", "/bench/data", "/other/x"} {
		if code, _, _ := get(path); code != 404 {
			t.Errorf("%s: got %d, want 404", path, code)
		}
	}
	sum := int64(len(all[0]))
	for i := 1; i < n; i++ {
		shared := 0
		for all[i][shared] == all[i-1][shared] {
			shared++
		}
		sum += int64(len(all[i]) - shared)
	}
	if got := k.FrontCoded(); got != sum {
		t.Errorf("got %d bytes of keys, want %d", got, sum)
	}
}

func isAscending(keys []string) bool {
	for i := 1; i < len(keys); i++ {
		if keys[i] <= keys[i-1] {
			return false
		}
	}
	return true
}

// list1 is the listing of one key, in which quotes are as they are sent.
func list1(t *testing.T, get func(string) (int, []byte, http.Header), key string) []byte {
	t.Helper()
	_, text, _ := get("/bench/?prefix=" + url.QueryEscape(key))
	return bytes.ReplaceAll(text, []byte("&#34;"), []byte(`"`))
}
