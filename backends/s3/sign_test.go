package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/stager-dev/stager/backends"
)

// fixed returns constant credentials.
func fixed(creds aws.Credentials) aws.CredentialsProvider {
	return aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return creds, nil })
}

func TestSignaturesMatchTheSDK(t *testing.T) {
	now := time.Date(2026, 11, 21, 23, 59, 59, 0, time.UTC)
	creds := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}
	session := creds
	session.SessionToken = "a/token+with=signs"
	for _, tt := range []struct {
		endpoint, payer string
		virtual         bool
		creds           aws.Credentials
		key             string
		values          map[int]string
	}{
		{"https://h:8443", "", false, creds, "plain/key.tar", nil},
		{"https://h:443/base", "", false, creds, "behind a base", nil},
		{"http://h:80", "", true, creds, "virtual", nil},
		{"", "requester", false, session, "on AWS", map[int]string{modeField: "ENABLED"}},
		{"", "", true, creds, "/begins//with/slashes/", map[int]string{rangeField: "bytes=1-2"}},
		{"http://h", "", false, session, "ä€😀 +%20%&?#=:;,@$'()*!~\x01\x7f\xff", map[int]string{matchField: `"e"`, rangeField: "bytes=0-", modeField: "ENABLED"}},
		{"", "requester", false, session, "with extras", map[int]string{
			sseField: "aws:kms", kmsKeyField: "arn:aws:kms:eu-west-3:1:key/k", tagsField: "a=b+c&d=e%26f",
			customerAlgorithmField: "AES256", customerKeyField: "a2V5", customerSumField: "c3Vt",
		}},
		{"http://h", "", false, creds, "a/./b/../c//d", nil},
	} {
		opts := s3.Options{Region: "eu-west-3", UsePathStyle: !tt.virtual, HTTPClient: &http.Client{}, Credentials: fixed(tt.creds)}
		if tt.endpoint != "" {
			opts.BaseEndpoint = &tt.endpoint
		}
		r, err := newReader(t.Context(), "bucket", opts, &http.Transport{}, tt.payer)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range []*call{r.object(tt.key), r.pageOf(selection{tt.key, "/", tt.key}, tt.key)} {
			for i, v := range tt.values {
				q.values[i] = v
			}
			// Also for another day, which has another key.
			for _, at := range []time.Time{now, now.Add(time.Second)} {
				got, err := r.request(t.Context(), q, at)
				if err != nil {
					t.Fatal(err)
				}
				want := got.Clone(t.Context())
				for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token", "User-Agent"} {
					want.Header.Del(name)
				}
				err = v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }).
					SignHTTP(t.Context(), tt.creds, want, emptySum, "s3", "eu-west-3", at)
				if err != nil {
					t.Fatal(err)
				}
				for _, name := range []string{"Authorization", "X-Amz-Date", "X-Amz-Security-Token"} {
					if got, want := got.Header.Get(name), want.Header.Get(name); got != want {
						t.Errorf("%s %q: %s is %q, want %q", tt.endpoint, tt.key, name, got, want)
					}
				}
			}
		}
	}
}

func BenchmarkSignatures(b *testing.B) {
	creds := aws.Credentials{AccessKeyID: "AKID", SecretAccessKey: "SECRET"}
	endpoint := "http://h"
	opts := s3.Options{Region: "eu-west-3", BaseEndpoint: &endpoint, UsePathStyle: true, HTTPClient: &http.Client{}, Credentials: fixed(creds)}
	r, err := newReader(b.Context(), "bucket", opts, &http.Transport{}, "")
	if err != nil {
		b.Fatal(err)
	}
	q := r.object("train/0000/000123.jpg")
	q.values[modeField], q.values[matchField] = "ENABLED", `"0123456789abcdef0123456789abcdef"`
	b.Run("own", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := r.request(b.Context(), q, time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("SDK", func(b *testing.B) {
		b.ReportAllocs()
		signer := v4.NewSigner(func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true })
		r.creds = nil
		for b.Loop() {
			req, err := r.request(b.Context(), q, time.Now())
			if err != nil {
				b.Fatal(err)
			}
			req.Header.Set("X-Amz-Content-Sha256", emptySum)
			if err := signer.SignHTTP(b.Context(), creds, req, emptySum, "s3", "eu-west-3", time.Now()); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A node with a drifted clock could not read anything: the SDK had learned the store's time from
// the first response, and our own signer must do so, too.
func TestClockSkewIsCorrected(t *testing.T) {
	for _, wrong := range []time.Duration{-time.Hour, 20 * time.Minute} {
		asked := 0
		b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
			asked++
			there := time.Now().Add(wrong)
			w.Header().Set("Date", there.UTC().Format(http.TimeFormat))
			at, err := time.Parse("20060102T150405Z", r.Header.Get("X-Amz-Date"))
			if err != nil || at.Sub(there).Abs() > 15*time.Minute {
				refuse(http.StatusForbidden, "RequestTimeTooSkewed")(w, r)
				return
			}
			w.Header().Set("ETag", `"v"`)
			fmt.Fprint(w, "data")
		})
		for range 3 {
			body, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 4, Version: "v"}, 0, 4)
			if err != nil {
				t.Fatalf("a clock that is off by %v: %v", wrong, err)
			}
			body.Close()
		}
		if asked != 4 {
			t.Errorf("a clock that is off by %v: %d requests, want one that is refused and three", wrong, asked)
		}
	}
	asked := 0
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		asked++
		refuse(http.StatusForbidden, "RequestTimeTooSkewed")(w, r)
	})
	_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 4, Version: "v"}, 0, 4)
	if backends.KindOf(err) != backends.Permission || asked != 1 {
		t.Errorf("a store that refuses a time that is right: %v after %d requests, want kind permission after one", err, asked)
	}
}

// A connection may still be writing the headers of a request when its refusal arrives. The headers
// of the retry were once written over them.
func TestSignatureRetryKeepsFirstRequest(t *testing.T) {
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Date", time.Now().Add(time.Hour).UTC().Format(http.TimeFormat))
		refuse(http.StatusForbidden, "RequestTimeTooSkewed")(w, r)
	})
	var sent []*http.Request
	var dates []string
	send := b.reader.send
	b.reader.send = func(r *http.Request, body *backends.Part) (*http.Response, error) {
		sent, dates = append(sent, r), append(dates, r.Header.Get("X-Amz-Date"))
		return send(r, body)
	}
	_, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 4, Version: "v"}, 0, 4)
	if len(sent) != 2 || backends.KindOf(err) != backends.Permission {
		t.Fatalf("%d requests, then %v, want two, then kind permission", len(sent), err)
	}
	if got := sent[0].Header.Get("X-Amz-Date"); got != dates[0] || dates[0] == dates[1] {
		t.Errorf("the first try says %s after the second said %s, want %s", got, dates[1], dates[0])
	}
}

func TestCredentialsChangeAppliesToNextRequest(t *testing.T) {
	var seen []string
	b := openFake(t, func(w http.ResponseWriter, r *http.Request) {
		_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		id, _, _ := strings.Cut(after, "/")
		seen = append(seen, id+" "+r.Header.Get("X-Amz-Security-Token"))
		w.Header().Set("ETag", `"v"`)
		fmt.Fprint(w, "data")
	})
	for i := range 3 {
		id := fmt.Sprint("id", i)
		b.reader.creds = fixed(aws.Credentials{AccessKeyID: id, SecretAccessKey: "s" + id, SessionToken: "t" + id})
		body, err := b.OpenRange(t.Context(), backends.Object{Key: "k", Size: 4}, 0, 4)
		if err != nil {
			t.Fatal(err)
		}
		body.Close()
	}
	if got := strings.Join(seen, ", "); got != "id0 tid0, id1 tid1, id2 tid2" {
		t.Errorf("signed by %s", got)
	}
}

// Directory buckets of S3 Express use sessions, whose token has a header of its own.
func TestSessionOfS3Express(t *testing.T) {
	express := fakeExpress{aws.Credentials{AccessKeyID: "session", SecretAccessKey: "s", SessionToken: "token"}}
	r, err := newReader(t.Context(), "data--euw1-az1--x-s3", s3.Options{
		Region: "eu-west-1", HTTPClient: &http.Client{}, Credentials: fixed(aws.Credentials{AccessKeyID: "id"}), ExpressCredentials: express,
	}, &http.Transport{}, "")
	if err != nil {
		t.Fatal(err)
	}
	req, err := r.request(t.Context(), r.object("k"), time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signed := req.Header.Get("Authorization")
	if req.URL.Host != "data--euw1-az1--x-s3.s3express-euw1-az1.eu-west-1.amazonaws.com" || req.Header.Get("X-Amz-S3session-Token") != "token" ||
		req.Header.Get("X-Amz-Security-Token") != "" || !strings.Contains(signed, "Credential=session/") || !strings.Contains(signed, "/eu-west-1/s3express/") {
		t.Errorf("asks %s with %v", req.URL, req.Header)
	}
}

type fakeExpress struct{ creds aws.Credentials }

func (f fakeExpress) Retrieve(context.Context, string) (aws.Credentials, error) { return f.creds, nil }

// The secret of a key was replaced while its ID stayed. The SDK signed with the old one until midnight.
func TestSDKSignerUsesTheSecretItIsGiven(t *testing.T) {
	sign := func(by interface {
		SignHTTP(context.Context, aws.Credentials, *http.Request, string, string, string, time.Time, ...func(*v4.SignerOptions)) error
	}, secret string,
	) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, "https://store.example/bucket/k", nil)
		if err == nil {
			err = by.SignHTTP(t.Context(), aws.Credentials{AccessKeyID: "id", SecretAccessKey: secret}, r, "UNSIGNED-PAYLOAD", "s3", "us-east-1", time.Unix(1e9, 0))
		}
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Get("Authorization")
	}
	var signer sdkSigner
	for _, secret := range []string{"first", "first", "second", "first"} {
		if got, want := sign(&signer, secret), sign(v4.NewSigner(), secret); got != want {
			t.Errorf("with the secret %s: got %s, want %s", secret, got, want)
		}
	}
}
