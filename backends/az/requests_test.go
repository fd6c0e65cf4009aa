package az

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"hash/crc64"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// scripted returns a store whose server is a function.
func scripted(t *testing.T, opts backends.Options, params string, serve http.HandlerFunc) *backends.Store {
	t.Helper()
	server := httptest.NewServer(serve)
	t.Cleanup(server.Close)
	if opts.Getenv == nil {
		opts.Getenv = environ("AZURE_STORAGE_KEY=" + base64.StdEncoding.EncodeToString([]byte("key")))
	}
	return openWith(t, "az://test/?endpoint="+url.QueryEscape(server.URL+"/mine")+params, opts)
}

// refuse returns an error response.
func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("X-Ms-Error-Code", code)
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>what %s says\nRequestId:1</Message></Error>", code, code)
}

func TestUploadsCarryTheCRC64OfAzure(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789"), 100)
	var want [8]byte // of a table as Azure documents it
	binary.LittleEndian.PutUint64(want[:], crc64.Checksum(data, crc64.MakeTable(0x9A6C9329AC4BC9B5)))
	var got atomic.Value
	store := scripted(t, backends.Options{}, "", func(w http.ResponseWriter, r *http.Request) {
		got.Store(r.Header.Get("X-Ms-Content-Crc64"))
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("ETag", `"1"`)
		w.WriteHeader(http.StatusCreated)
	})
	raw, _ := store.Backend()
	raw.(interface{ asAzure() }).asAzure()
	if _, err := store.PutBytes(t.Context(), "k", data, backends.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if want := base64.StdEncoding.EncodeToString(want[:]); got.Load() != want {
		t.Errorf("x-ms-content-crc64 = %v, want %s", got.Load(), want)
	}
}

// asAzure makes the store take its server for Azure.
func (s *store) asAzure() { s.access.place.azure = true }

func TestErrorsOfScriptedServers(t *testing.T) {
	for _, tt := range []struct {
		status int
		code   string
		kind   backends.Kind
		words  string
	}{
		{503, "ServerBusy", backends.Throttled, "what ServerBusy says (ServerBusy)"},
		{500, "InternalError", backends.Unavailable, "InternalError"},
		{403, "AuthenticationFailed", backends.Permission, `the account key does not belong to account "mine"`},
		{403, "AccountIsDisabled", backends.Permission, "the storage account is disabled"},
		{409, "BlobArchived", backends.Unsupported, "must be rehydrated"},
		{404, "ContainerNotFound", backends.NotExist, `container "test" does not exist in account "mine"`},
		{404, "BlobNotFound", backends.NotExist, "no such object"},
		{412, "ConditionNotMet", backends.Changed, "changed after it was listed"},
		{400, "InvalidHeaderValue", backends.Invalid, "what InvalidHeaderValue says (InvalidHeaderValue)"},
	} {
		store := scripted(t, backends.Options{RetryFor: time.Nanosecond}, "", func(w http.ResponseWriter, _ *http.Request) { refuse(w, tt.status, tt.code) })
		raw, _ := store.Backend()
		_, err := raw.OpenRange(t.Context(), backends.Object{Key: "k", Size: 5}, 0, 5)
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), tt.words) {
			t.Errorf("%d %s: got %v (%v), want kind %v and %q", tt.status, tt.code, err, backends.KindOf(err), tt.kind, tt.words)
		}
	}
}

// The first key in the directory of the Secret is wrong, and replaced while requests fail.
func TestChangedSecretsTakeEffect(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "AZURE_STORAGE_SAS_TOKEN")
	if err := os.WriteFile(file, []byte("?sig=old\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var requests atomic.Int64
	store := scripted(t, backends.Options{Secrets: dir, RetryFor: time.Minute}, "", func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("sig") == "new" {
			w.Header().Set("ETag", `"1"`)
			w.Header().Set("Content-Length", "5")
			return
		}
		if requests.Add(1) == 1 {
			if err := os.WriteFile(file, []byte("sig=new"), 0o600); err != nil {
				t.Error(err)
			}
		}
		refuse(w, http.StatusForbidden, "AuthenticationFailed")
	})
	if obj, err := store.Stat(t.Context(), "k"); err != nil || obj.Size != 5 || requests.Load() != 1 {
		t.Errorf("Stat = %+v, %v after %d rejected requests; want 5 bytes after 1", obj, err, requests.Load())
	}
}

func TestManagedIdentityFailuresAreExplained(t *testing.T) {
	for _, tt := range []struct {
		status int
		kind   backends.Kind
	}{{400, backends.Permission}, {503, backends.Unavailable}} {
		service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.status)
			_, _ = io.WriteString(w, `{"error":"invalid_request","error_description":"Identity not found"}`)
		}))
		defer service.Close()
		id, err := newManaged(environ("AZURE_POD_IDENTITY_AUTHORITY_HOST="+service.URL), "")
		if err != nil {
			t.Fatal(err)
		}
		_, err = id.GetToken(t.Context(), tokenOptions)
		s := &store{access: &access{}, log: discard}
		err = s.explain("list", "", err)
		if backends.KindOf(err) != tt.kind || !strings.Contains(fmt.Sprint(err), "no credentials were found, and the managed identity has no token") {
			t.Errorf("HTTP %d: got %v (%v), want kind %v", tt.status, err, backends.KindOf(err), tt.kind)
		}
	}
}

func TestManagedIdentityTokens(t *testing.T) {
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Metadata") != "true" || r.URL.Query().Get("client_id") != "chosen" {
			t.Errorf("the request is %s with %v, want the metadata header and the client", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"access_token":"secret","expires_in":"3600","expires_on":"%d","resource":"https://storage.azure.com/","token_type":"Bearer"}`, time.Now().Add(time.Hour).Unix())
	}))
	defer service.Close()
	id, err := newManaged(environ("AZURE_POD_IDENTITY_AUTHORITY_HOST="+service.URL), "chosen")
	if err != nil {
		t.Fatal(err)
	}
	if token, err := id.GetToken(t.Context(), tokenOptions); err != nil || token.Token != "secret" {
		t.Errorf("GetToken = %q, %v; want the token of the service", token.Token, err)
	}
}

func TestLogsAndErrorsHaveNoToken(t *testing.T) {
	store := openWith(t, "az://test/?endpoint="+url.QueryEscape("http://127.0.0.1:1/mine"), backends.Options{
		RetryFor: time.Nanosecond, Getenv: environ("AZURE_STORAGE_SAS_TOKEN=sv=1&sig=hush"),
	})
	_, err := store.Stat(t.Context(), "k")
	if err == nil || strings.Contains(err.Error(), "hush") || strings.Contains(objectstore.Innermost(err).Error(), "hush") {
		t.Errorf("got %v, want an error without the token", err)
	}
}

var (
	discard      = slog.New(slog.DiscardHandler)
	tokenOptions = policy.TokenRequestOptions{Scopes: []string{"https://storage.azure.com/.default"}}
)
