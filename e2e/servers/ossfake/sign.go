package ossfake

import (
	"crypto/hmac"
	"crypto/sha1" // what signature V1 is made of
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"hash"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/fake"
)

// credential is what an access key stands for.
type credential struct {
	secret  string
	token   string    // "" for a key for good
	expires time.Time // of the token
}

// skew is how far a client's clock may be off.
const skew = 15 * time.Minute

// isoTime is how signature V4 writes a time.
const isoTime = "20060102T150405Z"

// subresources are the query's parameters that signature V1 covers, of those in
// query. V4 covers all.
var subresources = []string{"continuation-token", "partNumber", "uploadId", "uploads", "versioning"}

// verify tells whose request this is, by access key; "" when it is nobody's: without
// a signature at all. A signature that is wrong is an error, also on a public bucket.
func (s *Server) verify(r *http.Request, bucket, key string) (string, error) {
	auth := r.Header.Get("Authorization")
	if auth == "" {
		return "", nil
	}
	var (
		id, want string
		sign     func(secret string) string
		at       time.Time
		v        *v4 // nil for signature V1
		err      error
	)
	switch scheme, rest, _ := strings.Cut(auth, " "); scheme {
	case "OSS":
		var ok bool
		if id, want, ok = strings.Cut(rest, ":"); !ok {
			return "", fake.Fail(http.StatusBadRequest, "InvalidArgument", "Authorization header is invalid.")
		}
		if r.Header.Get("x-oss-date") != "" {
			return "", fake.Fail(http.StatusNotImplemented, "NotImplemented", "x-oss-date in signature V1 is not known here.")
		}
		at, err = http.ParseTime(r.Header.Get("Date"))
		sign = func(secret string) string { return signV1(secret, r, bucket, key) }
	case "OSS4-HMAC-SHA256":
		if v, err = s.parseV4(r, rest); err != nil {
			return "", err
		}
		id, want, at = v.id, v.signature, v.at
		sign = func(secret string) string { return v.sign(secret, r, bucket, key) }
	default:
		return "", fake.Fail(http.StatusForbidden, "AccessDenied", "The signature scheme %s is not known here.", scheme)
	}
	if err != nil {
		return "", fake.Fail(http.StatusForbidden, "AccessDenied", "OSS authentication requires a valid Date.")
	}
	if d := s.now().Sub(at); d > skew || d < -skew {
		return "", fake.Fail(http.StatusForbidden, "RequestTimeTooSkewed", "The difference between the request time and the current time is too large.")
	}
	if v != nil && v.day != at.UTC().Format("20060102") {
		return "", fake.Fail(http.StatusBadRequest, "InvalidArgument", "The Credential field's date is not that of the request.")
	}
	s.Mu.Lock()
	cred, known := s.keys[id]
	s.Mu.Unlock()
	switch token := r.Header.Get("x-oss-security-token"); {
	case !known:
		return "", fake.Fail(http.StatusForbidden, "InvalidAccessKeyId", "The OSS Access Key Id you provided does not exist in our records.")
	case token != cred.token:
		return "", fake.Fail(http.StatusForbidden, "InvalidSecurityToken", "The security token you provided is invalid.")
	case !hmac.Equal([]byte(sign(cred.secret)), []byte(want)):
		return "", fake.Fail(http.StatusForbidden, "SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your key and signing method.")
	case token != "" && s.now().After(cred.expires):
		return "", fake.Fail(http.StatusForbidden, "SecurityTokenExpired", "The security token you provided has expired.")
	}
	return id, nil
}

// signV1 is base64(hmac-sha1(secret, VERB \n Content-MD5 \n Content-Type \n Date \n
// x-oss-headers resource)).
func signV1(secret string, r *http.Request, bucket, key string) string {
	text := strings.Join([]string{r.Method, r.Header.Get("Content-MD5"), r.Header.Get("Content-Type"), r.Header.Get("Date")}, "\n") + "\n"
	text += headersOf(r, func(name string) bool { return strings.HasPrefix(name, "x-oss-") })
	text += resource(bucket, key)
	mark := "?"
	for _, name := range subresources { // they ascend
		values, ok := r.URL.Query()[name]
		if !ok {
			continue
		}
		text += mark + name
		if values[0] != "" {
			text += "=" + values[0]
		}
		mark = "&"
	}
	return base64.StdEncoding.EncodeToString(mac(sha1.New, []byte(secret), text))
}

// v4 is an Authorization header of signature V4, taken apart.
type v4 struct {
	id, day, region, signature string
	additional                 []string // headers signed beyond those that always are
	stamp                      string   // the time as it is signed
	at                         time.Time
}

func (s *Server) parseV4(r *http.Request, text string) (*v4, error) {
	fields := make(map[string]string)
	for field := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(field), "=")
		fields[name] = value
	}
	scope := strings.Split(fields["Credential"], "/")
	if len(scope) != 5 || scope[3] != "oss" || scope[4] != "aliyun_v4_request" || fields["Signature"] == "" {
		return nil, fake.Fail(http.StatusBadRequest, "InvalidArgument", "The Credential field in Authorization header is invalid.")
	}
	v := &v4{id: scope[0], day: scope[1], region: scope[2], signature: fields["Signature"]}
	if a := fields["AdditionalHeaders"]; a != "" {
		v.additional = strings.Split(a, ";")
	}
	var err error
	if v.stamp = r.Header.Get("x-oss-date"); v.stamp != "" {
		v.at, err = time.Parse(isoTime, v.stamp)
	} else {
		v.stamp = r.Header.Get("Date")
		v.at, err = http.ParseTime(v.stamp)
	}
	switch {
	case err != nil:
		return nil, fake.Fail(http.StatusForbidden, "AccessDenied", "OSS authentication requires a valid Date.")
	case v.region != s.Region:
		return nil, fake.Fail(http.StatusBadRequest, "InvalidArgument", "Invalid signing region in Authorization header.")
	case r.Header.Get("x-oss-content-sha256") != "UNSIGNED-PAYLOAD":
		return nil, fake.Fail(http.StatusBadRequest, "InvalidArgument", "x-oss-content-sha256 must be UNSIGNED-PAYLOAD.")
	case !slices.IsSorted(v.additional):
		return nil, fake.Fail(http.StatusBadRequest, "InvalidArgument", "AdditionalHeaders must ascend.")
	}
	return v, nil
}

// sign is the signature that the request should have.
func (v *v4) sign(secret string, r *http.Request, bucket, key string) string {
	given := make(map[string]string)
	for name, values := range r.URL.Query() {
		given[escape(name)] = escape(values[0])
	}
	var params []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] != "" {
			name += "=" + given[name]
		}
		params = append(params, name)
	}
	headers := headersOf(r, func(name string) bool {
		return strings.HasPrefix(name, "x-oss-") || name == "content-type" || name == "content-md5" || slices.Contains(v.additional, name)
	})
	canonical := sha256.Sum256([]byte(strings.Join([]string{
		r.Method, strings.ReplaceAll(escape(resource(bucket, key)), "%2F", "/"), strings.Join(params, "&"),
		headers, strings.Join(v.additional, ";"), r.Header.Get("x-oss-content-sha256"),
	}, "\n")))
	scope := v.day + "/" + v.region + "/oss/aliyun_v4_request"
	signing := []byte("aliyun_v4" + secret)
	for part := range strings.SplitSeq(scope, "/") {
		signing = mac(sha256.New, signing, part)
	}
	return hex.EncodeToString(mac(sha256.New, signing, strings.Join([]string{
		"OSS4-HMAC-SHA256", v.stamp, scope, hex.EncodeToString(canonical[:]),
	}, "\n")))
}

// headersOf are the lines of the headers that are signed, by name.
func headersOf(r *http.Request, signed func(name string) bool) string {
	lower := make(map[string]string)
	for name, values := range r.Header {
		if name = strings.ToLower(name); signed(name) {
			lower[name] = strings.TrimSpace(strings.Join(values, ","))
		}
	}
	var text strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lower)) {
		text.WriteString(name + ":" + lower[name] + "\n")
	}
	return text.String()
}

func mac(h func() hash.Hash, key []byte, text string) []byte {
	m := hmac.New(h, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

// resource is what a request is for, as it is signed.
func resource(bucket, key string) string {
	if bucket == "" {
		return "/"
	}
	return "/" + bucket + "/" + key
}

// escape leaves letters, digits and "-_.~" as they are, as RFC 3986 has it.
func escape(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
