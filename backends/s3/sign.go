package s3

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
)

// signer signs requests by AWS Signature Version 4, but not their bodies, and keeps the key
// of the day. The SDK's does the same and takes three times as long, since it must find out
// what this one is told: which headers there are, and in which order.
type signer struct {
	creds   aws.CredentialsProvider // nil: requests are not signed
	token   int                     // the field that a session's token goes into
	service string
	region  string
	key     atomic.Pointer[dayKey]
	ahead   atomic.Int64 // nanoseconds by which the store's clock is ahead of ours
}

// dayKey is what a secret becomes for one day, one region and one service.
type dayKey struct {
	secret, day string
	macs        sync.Pool // of hash.Hash: HMACs by the key, which begins with half of the work
}

func (k *dayKey) mac(text []byte) [sha256.Size]byte {
	h := k.macs.Get().(hash.Hash)
	defer k.macs.Put(h)
	h.Reset()
	h.Write(text)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	return sum
}

// What stands for the SHA-256 of a body: that of no bytes, and for all others that it is
// not signed, since a checksum that costs less goes with it.
const (
	emptySum = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	unsigned = "UNSIGNED-PAYLOAD"
)

// fields are the headers that are signed, in ascending order, and as net/http writes
// them.
var fields = [...]struct{ signed, sent string }{
	{"content-type", "Content-Type"},
	{"host", ""}, // which net/http knows from elsewhere
	{"if-match", "If-Match"},
	{"if-none-match", "If-None-Match"},
	{"range", "Range"},
	{"x-amz-checksum-crc64nvme", "X-Amz-Checksum-Crc64nvme"},
	{"x-amz-checksum-mode", "X-Amz-Checksum-Mode"},
	{"x-amz-content-sha256", "X-Amz-Content-Sha256"},
	{"x-amz-date", "X-Amz-Date"},
	{"x-amz-meta-" + markName, "X-Amz-Meta-Stager-Write"},
	{"x-amz-request-payer", "X-Amz-Request-Payer"},
	{"x-amz-s3session-token", "X-Amz-S3session-Token"},
	{"x-amz-security-token", "X-Amz-Security-Token"},
}

// The fields by their places.
const (
	typeField = iota
	hostField
	matchField
	noneMatchField
	rangeField
	crcField
	modeField
	sumField
	dateField
	markField
	payerField
	sessionField // the token of a session of S3 Express
	tokenField   // that of all others
)

// values are those of the fields; what has none is left out.
type values [len(fields)]string

// call is what a request asks for. Its path and query are escaped as they are signed.
type call struct {
	method             string // "": GET
	plain, path, query string
	values             values
	body               *io.SectionReader // nil: none
}

func (q *call) verb() string { return cmp.Or(q.method, http.MethodGet) }

// header returns the headers of a request, signed as of now. They share the memory of q.
func (s *signer) header(ctx context.Context, q *call, now time.Time) (http.Header, error) {
	var creds aws.Credentials
	if s.creds != nil {
		var err error
		if creds, err = s.creds.Retrieve(ctx); err != nil {
			return nil, err
		}
		now = now.Add(time.Duration(s.ahead.Load())).UTC()
		q.values[sumField], q.values[dateField], q.values[s.token] = emptySum, now.Format("20060102T150405Z"), creds.SessionToken
		if q.body != nil {
			q.values[sumField] = unsigned
		}
	}
	h := make(http.Header, len(fields)+1)
	for i, value := range &q.values {
		if value != "" && i != hostField {
			h[fields[i].sent] = q.values[i : i+1 : i+1]
		}
	}
	h["User-Agent"] = userAgent
	if s.creds != nil {
		h["Authorization"] = []string{s.authorization(&creds, q)}
	}
	return h, nil
}

var userAgent = []string{"stager"}

// authorization is the header of that name.
func (s *signer) authorization(creds *aws.Credentials, q *call) string {
	const algorithm = "AWS4-HMAC-SHA256"
	at := q.values[dateField]
	day := at[:8]
	text := texts.Get().(*[]byte)
	defer texts.Put(text)
	b := append(append((*text)[:0], q.verb()...), '\n')
	b = append(append(b, q.path...), '\n')
	b = append(append(b, q.query...), '\n')
	names := make([]byte, 0, 160)
	for i, value := range &q.values {
		if value != "" {
			b = append(append(append(append(b, fields[i].signed...), ':'), value...), '\n')
			names = append(append(names, fields[i].signed...), ';')
		}
	}
	names = names[:len(names)-1]
	b = append(append(append(append(b, '\n'), names...), '\n'), q.values[sumField]...)
	sum := sha256.Sum256(b)

	b = append(b[:0], algorithm+"\n"...)
	b = append(append(b, at...), '\n')
	scope := len(b)
	b = append(append(b, day...), '/')
	b = append(append(b, s.region...), '/')
	b = append(append(b, s.service...), "/aws4_request"...)
	end := len(b)
	b = hex.AppendEncode(append(b, '\n'), sum[:])
	mac := s.keyOf(creds.SecretAccessKey, day).mac(b)

	out := len(b)
	b = append(b, algorithm+" Credential="...)
	b = append(append(b, creds.AccessKeyID...), '/')
	b = append(append(b, b[scope:end]...), ", SignedHeaders="...)
	b = append(append(b, names...), ", Signature="...)
	b = hex.AppendEncode(b, mac[:])
	*text = b
	return string(b[out:])
}

// texts are places for what is signed. On the stack one would take twice as much, which a
// stack doubles by, and there is one for each request.
var texts = sync.Pool{New: func() any { return new([]byte) }}

func (s *signer) keyOf(secret, day string) *dayKey {
	if k := s.key.Load(); k != nil && k.secret == secret && k.day == day {
		return k
	}
	key := []byte("AWS4" + secret)
	for _, part := range []string{day, s.region, s.service, "aws4_request"} {
		h := hmac.New(sha256.New, key)
		h.Write([]byte(part))
		key = h.Sum(nil)
	}
	k := &dayKey{secret: secret, day: day}
	k.macs.New = func() any { return hmac.New(sha256.New, key) }
	s.key.Store(k)
	return k
}

// skewThreshold is by how much clocks must differ to be believed.
const skewThreshold = 4 * time.Minute

// learnClock takes the time of a store that refused a signature for its time, and tells
// whether another one is worth trying.
func (s *signer) learnClock(date string, now time.Time) bool {
	there, err := http.ParseTime(date)
	if err != nil {
		return false
	}
	ahead := there.Sub(now)
	if (ahead - time.Duration(s.ahead.Load())).Abs() < skewThreshold {
		return false
	}
	s.ahead.Store(int64(ahead))
	return true
}
