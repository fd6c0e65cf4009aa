package servers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// azurite is installed without what it would need only to keep its data in a database, and to report its use.
const azurite npmPackages = "azurite"

// azuriteMain is the program in its directory.
const azuriteMain = "node_modules/azurite/dist/src/blob/main.js"

// AzuriteOptions describe the server to start. The zero value works.
type AzuriteOptions struct {
	TLS        bool
	Dir        string    // where its blobs lie; "": a directory that Close removes
	Containers []string  // made before it is ready; none: one named "test"
	Public     []string  // those of Containers that anybody may read
	Log        io.Writer // its output
}

// Azurite is a running server of Azure Blob Storage.
type Azurite struct {
	Endpoint     string
	Account, Key string
	CAFile       string // the authority to trust; "" without TLS

	daemon
	opts    AzuriteOptions
	address string
	cert    string
	certKey string
	temp    *temp
}

// StartAzurite starts Azurite on a free port of this machine, with its containers.
func StartAzurite(ctx context.Context, opts AzuriteOptions) (a *Azurite, err error) {
	a = &Azurite{Account: "stagertest", Key: base64.StdEncoding.EncodeToString([]byte("the key of an account for tests")), opts: opts}
	if len(opts.Containers) == 0 {
		a.opts.Containers = []string{"test"}
	}
	program, main, err := azurite.program(azuriteMain)
	if err != nil {
		return nil, notHere("az", err)
	}
	defer closeUnlessStarted(&a, &err)
	if a.temp, err = makeTemp("az"); err != nil {
		return a, err
	}
	if a.opts.Dir == "" {
		a.opts.Dir = filepath.Join(a.temp.path, "blobs")
	}
	if err := os.MkdirAll(a.opts.Dir, 0o755); err != nil {
		return a, err
	}
	scheme := "http"
	if opts.TLS {
		scheme = "https"
		if a.CAFile, a.cert, a.certKey, err = certificate(a.temp.path); err != nil {
			return a, err
		}
	}
	if a.address, err = ports.Free(localhost); err != nil {
		return a, err
	}
	a.Endpoint = fmt.Sprintf("%s://%s/%s", scheme, a.address, a.Account)
	a.daemon = daemon{
		name: "Azurite at " + a.address, command: func() *exec.Cmd { return a.command(program, main) },
		answers: takesConnections(a.address), log: opts.Log,
	}
	if err := a.Start(ctx); err != nil {
		return a, err
	}
	for _, name := range a.opts.Containers {
		if err := a.makeContainer(ctx, name); err != nil {
			return a, err
		}
	}
	return a, nil
}

func (a *Azurite) command(program, main string) *exec.Cmd {
	host, port, _ := strings.Cut(a.address, ":")
	args := []string{main, "--blobHost", host, "--blobPort", port, "--location", a.opts.Dir, "--silent", "--disableTelemetry", "--skipApiVersionCheck"}
	if a.CAFile != "" {
		args = append(args, "--cert", a.cert, "--key", a.certKey, "--oauth", "basic")
	}
	cmd := exec.Command(program, args...)
	cmd.Dir = a.temp.path
	cmd.Env = append(os.Environ(), "AZURITE_ACCOUNTS="+a.Account+":"+a.Key)
	return cmd
}

// makeContainer makes a container, unless it is there.
func (a *Azurite) makeContainer(ctx context.Context, name string) error {
	header := make(http.Header)
	if slices.Contains(a.opts.Public, name) {
		header.Set("X-Ms-Blob-Public-Access", "container")
	}
	_, err := a.request(ctx, http.MethodPut, name+"?restype=container", header)
	return err
}

// request sends a request for a path of the account and returns the body of the response. It is no
// error if the path exists already.
func (a *Azurite) request(ctx context.Context, method, path string, header http.Header) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.Endpoint+"/"+path+"&"+a.SAS(time.Hour), nil)
	if err != nil {
		return nil, err
	}
	req.Header = header
	var trusted *x509.CertPool
	if a.CAFile != "" {
		authority, err := os.ReadFile(a.CAFile)
		if err != nil {
			return nil, err
		}
		trusted = x509.NewCertPool()
		trusted.AppendCertsFromPEM(authority)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(res.Body)
	if cerr := res.Body.Close(); err == nil {
		err = cerr
	}
	if err == nil && res.StatusCode >= 300 && res.StatusCode != http.StatusConflict {
		err = fmt.Errorf("%s %s: %s %s", method, path, res.Status, text)
	}
	return text, err
}

// Keys returns the names of the blobs of a container, and how many other names have only blocks.
func (a *Azurite) Keys(ctx context.Context, container string) (keys []string, uploads int, err error) {
	list := func(include string) (names []string, err error) {
		for marker := ""; ; {
			text, err := a.request(ctx, http.MethodGet, container+"?restype=container&comp=list&include="+include+"&marker="+url.QueryEscape(marker), nil)
			if err != nil {
				return nil, err
			}
			var page struct {
				Blobs      struct{ Blob []struct{ Name string } }
				NextMarker string
			}
			if err := xml.Unmarshal(text, &page); err != nil {
				return nil, err
			}
			for _, blob := range page.Blobs.Blob {
				names = append(names, blob.Name)
			}
			if marker = page.NextMarker; marker == "" {
				return names, nil
			}
		}
	}
	all, err := list("uncommittedblobs")
	if err == nil {
		keys, err = list("metadata")
	}
	return keys, len(all) - len(keys), err
}

// SAS returns a token of the account with all rights, which ends after a while, or has ended if
// that is negative.
func (a *Azurite) SAS(ends time.Duration) string {
	const version = "2022-11-02"
	q := url.Values{
		"sv": {version}, "ss": {"b"}, "srt": {"sco"}, "sp": {"rwdlacup"},
		"st": {time.Now().Add(min(0, ends) - time.Hour).UTC().Format(time.RFC3339)}, "se": {time.Now().Add(ends).UTC().Format(time.RFC3339)}, "spr": {"https,http"},
	}
	text := strings.Join([]string{a.Account, q.Get("sp"), q.Get("ss"), q.Get("srt"), q.Get("st"), q.Get("se"), "", q.Get("spr"), version, "", ""}, "\n")
	key, _ := base64.StdEncoding.DecodeString(a.Key) // it was encoded by StartAzurite
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(text))
	q.Set("sig", base64.StdEncoding.EncodeToString(mac.Sum(nil)))
	return q.Encode()
}

// Env are the variables by which stager finds the server, and its tests a token that has expired.
func (a *Azurite) Env() []string {
	env := []string{
		"AZURE_STORAGE_ACCOUNT_NAME=" + a.Account, "AZURE_STORAGE_KEY=" + a.Key, "AZURE_STORAGE_SERVICE_ENDPOINT=" + a.Endpoint,
		"AZURITE_SAS=" + a.SAS(24*time.Hour), "AZURITE_EXPIRED_SAS=" + a.SAS(-time.Hour),
	}
	if a.CAFile != "" {
		env = append(env, "AZURE_CA_BUNDLE="+a.CAFile)
	}
	return env
}

// Kill ends the server with all its connections. Azurite writes to the disk every five seconds
// what it has acknowledged, so it is let do so before it ends.
func (a *Azurite) Kill() error { return a.stop() }

// Close ends the server.
func (a *Azurite) Close() error { return errors.Join(a.stop(), a.temp.remove()) }
