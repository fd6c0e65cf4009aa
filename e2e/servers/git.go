package servers

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/cgi"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// GitOptions describe the server to start. The zero value works.
type GitOptions struct {
	TLS bool      // serve HTTPS, with an authority made for the day
	Dir string    // where the repositories lie; "": a directory that Close removes
	Log io.Writer // its output
	// Dies is after how many bytes of responses the server is killed, once; 0: never. It is there
	// again after Away.
	Dies int64
	Away time.Duration
}

// Git is a running Git server in this process: "git http-backend", by CGI. Repositories in the
// directory "private" demand the user and the password.
type Git struct {
	Address  string // host:port
	User     string
	Password string
	CA       string // the file of its authority; "" without TLS
	Dir      string

	opts      GitOptions
	cert, key string
	handler   cgi.Handler
	temp      *temp

	frozen sync.RWMutex // locked while the server does not answer
	sent   atomic.Int64
	dies   sync.Once

	mu     sync.Mutex   // guards the fields below
	server *http.Server // nil while it is away
	done   chan struct{}
}

// gitMissing says why Git cannot serve here.
func gitMissing() error {
	git, err := find("git")
	if err != nil {
		return err
	}
	at, err := exec.Command(git, "--exec-path").Output()
	if err == nil {
		_, err = os.Stat(filepath.Join(strings.TrimSpace(string(at)), "git-http-backend"))
	}
	return err
}

// StartGit starts a Git server on a free port of this machine.
func StartGit(ctx context.Context, opts GitOptions) (g *Git, err error) {
	if err := gitMissing(); err != nil {
		return nil, notHere("git", err)
	}
	g = &Git{User: "stager", Password: rand.Text(), Dir: opts.Dir, opts: opts}
	defer closeUnlessStarted(&g, &err)
	if g.temp, err = makeTemp("git"); err != nil {
		return g, err
	}
	if g.Dir == "" {
		g.Dir = filepath.Join(g.temp.path, "repositories")
	}
	if err := os.MkdirAll(filepath.Join(g.Dir, "private"), 0o755); err != nil {
		return g, err
	}
	if opts.TLS {
		if g.CA, g.cert, g.key, err = certificate(g.temp.path); err != nil {
			return g, err
		}
	}
	if g.Address, err = ports.Free(localhost); err != nil {
		return g, err
	}
	git, _ := find("git") // gitMissing found it
	output := opts.Log
	if output == nil {
		output = io.Discard
	}
	g.handler = cgi.Handler{
		Path: git, Args: []string{"http-backend"}, Dir: g.Dir, Stderr: output, Logger: log.New(output, "", 0),
		Env: []string{
			"GIT_PROJECT_ROOT=" + g.Dir, "GIT_HTTP_EXPORT_ALL=1", "HOME=" + g.temp.path,
			"GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		},
	}
	return g, g.Start(ctx)
}

// Start starts the server again after Kill, at the same address.
func (g *Git) Start(ctx context.Context) error {
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", g.Address)
	if err != nil {
		return err
	}
	server, done := &http.Server{Handler: http.HandlerFunc(g.serve), ErrorLog: g.handler.Logger, ReadHeaderTimeout: time.Minute}, make(chan struct{})
	g.mu.Lock()
	defer g.mu.Unlock()
	g.server, g.done = server, done
	go func() {
		defer close(done)
		if g.opts.TLS {
			_ = server.ServeTLS(listener, g.cert, g.key) // it ends with Kill
		} else {
			_ = server.Serve(listener) // the same
		}
	}()
	return nil
}

func (g *Git) serve(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/private/") {
		user, password, _ := r.BasicAuth()
		if user != g.User || subtle.ConstantTimeCompare([]byte(password), []byte(g.Password)) == 0 {
			w.Header().Set("WWW-Authenticate", `Basic realm="Git"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
	}
	g.handler.ServeHTTP(&response{w, g}, r)
}

// response waits while the server is frozen, and may be the one in which it dies.
type response struct {
	http.ResponseWriter
	g *Git
}

// Write implements io.Writer.
func (r *response) Write(p []byte) (int, error) {
	g := r.g
	g.frozen.RLock()
	defer g.frozen.RUnlock()
	if sent := g.sent.Add(int64(len(p))); g.opts.Dies > 0 && sent >= g.opts.Dies {
		g.dies.Do(func() {
			_ = g.Kill() // the client sees whether it is gone
			time.AfterFunc(g.opts.Away, func() {
				if err := g.Start(context.Background()); err != nil {
					g.handler.Logger.Print(err) // the client waits in vain
				}
			})
		})
	}
	return r.ResponseWriter.Write(p)
}

// Kill ends the server with all its connections.
func (g *Git) Kill() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.server == nil {
		return nil
	}
	err := g.server.Close()
	<-g.done
	g.server = nil
	return err
}

// Freeze keeps the server from sending anything, until Thaw.
func (g *Git) Freeze() error {
	g.frozen.Lock()
	return nil
}

// Thaw ends Freeze.
func (g *Git) Thaw() error {
	g.frozen.Unlock()
	return nil
}

// URL is the URL of a repository, up to its revision.
func (g *Git) URL(repo string) string {
	if g.opts.TLS {
		return "git+https://" + g.Address + "/" + repo
	}
	return "git+http://" + g.Address + "/" + repo
}

// Env are the variables by which stager and tests find the server.
func (g *Git) Env() []string {
	return []string{
		"GIT_SERVER=" + g.Address,
		"GIT_REPOSITORIES=" + g.Dir,
		"GIT_CA=" + g.CA,
		"GIT_USERNAME=" + g.User,
		"GIT_PASSWORD=" + g.Password,
	}
}

// Close ends the server.
func (g *Git) Close() error { return errors.Join(g.Kill(), g.temp.remove()) }

// MakeGit makes a repository of the files of a directory, with one commit on the branch main, and
// returns the commit. What belongs to Git lies in the directory itself.
func MakeGit(ctx context.Context, dir string) (commit string, err error) {
	git, err := find("git")
	if err != nil {
		return "", notHere("git", err)
	}
	for _, args := range [][]string{
		{"init", "--quiet", "--initial-branch=main"},
		{"add", "--all", "--force", "."},
		{"-c", "user.name=stager", "-c", "user.email=stager@localhost", "commit", "--quiet", "--allow-empty", "--message=first"},
		{"rev-parse", "HEAD"},
	} {
		if commit, err = outputIn(ctx, dir, git, args...); err != nil {
			return "", err
		}
	}
	return strings.TrimSpace(commit), nil
}
