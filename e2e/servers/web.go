package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/stager-dev/stager/e2e/servers/ports"
)

// WebKind is a web server of another project.
type WebKind string

// The web servers, whose index pages and ranges differ.
const (
	Nginx     WebKind = "nginx"
	NginxJSON WebKind = "nginx-json" // with index pages in JSON
	Apache    WebKind = "apache"
	PythonWeb WebKind = "python" // python3 -m http.server, which knows no ranges
)

// WebOptions describe the server to start. The zero value works.
type WebOptions struct {
	Kind   WebKind   // "": Nginx
	Dir    string    // what it serves; "": a directory that Close removes
	Before string    // the URL of a server that Nginx passes all requests on to; "": it serves files
	Log    io.Writer // its output
}

// Web is a running web server that serves a directory.
type Web struct {
	URL string // without a trailing "/"
	Dir string

	daemon
	kind    WebKind
	before  string
	address string
	deb     string // where its packages are unpacked
	temp    *temp
}

// webPackages are Debian's, unpacked and not installed: they would start services.
var webPackages = []string{"nginx", "apache2-bin"}

// StartWeb starts a web server on a free port of this machine and returns when it takes
// connections.
func StartWeb(ctx context.Context, opts WebOptions) (w *Web, err error) {
	w = &Web{kind: cmp.Or(opts.Kind, Nginx), Dir: opts.Dir, before: opts.Before}
	if w.deb, err = unpackedAt(webPackages); err != nil {
		return nil, err
	}
	if w.kind != PythonWeb && !isUnpacked(w.deb) {
		return nil, notHere("http", errors.New("there is no nginx and no Apache on this machine"))
	}
	if _, err := find("python3"); w.kind == PythonWeb && err != nil {
		return nil, notHere("http", err)
	}
	defer closeUnlessStarted(&w, &err)
	if w.temp, err = makeTemp("http"); err != nil {
		return w, err
	}
	if w.Dir == "" {
		w.Dir = filepath.Join(w.temp.path, "files")
		if err := os.Mkdir(w.Dir, 0o755); err != nil {
			return w, err
		}
	}
	if w.address, err = ports.Free(localhost); err != nil {
		return w, err
	}
	w.URL = "http://" + w.address
	if err := os.WriteFile(w.config(), []byte(w.configuration()), 0o600); err != nil {
		return w, err
	}
	w.daemon = daemon{name: string(w.kind) + " at " + w.address, command: w.command, answers: takesConnections(w.address), log: opts.Log}
	return w, w.Start(ctx)
}

func (w *Web) config() string { return filepath.Join(w.temp.path, "web.conf") }

const nginxConfig = `
daemon off;
master_process off;
pid %[1]s/pid;
error_log stderr;
events {}
http {
	access_log off;
	sendfile on;
	default_type application/octet-stream;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	server {
		listen %[2]s;
		root %[3]s;
		autoindex on;
		autoindex_format %[4]s;
		%[5]s
	}
}
`

const apacheConfig = `
ServerRoot %[1]s
DefaultRuntimeDir %[1]s
PidFile %[1]s/pid
ServerName localhost
Listen %[2]s
ErrorLog /dev/stderr
LoadModule mpm_event_module %[4]s/mod_mpm_event.so
LoadModule authz_core_module %[4]s/mod_authz_core.so
LoadModule dir_module %[4]s/mod_dir.so
LoadModule autoindex_module %[4]s/mod_autoindex.so
%[5]s
DocumentRoot %[3]s
<Directory %[3]s>
	Options Indexes FollowSymLinks
	IndexOptions FancyIndexing
	Require all granted
</Directory>
`

func (w *Web) configuration() string {
	switch w.kind {
	case Apache:
		user := ""
		if os.Geteuid() == 0 {
			user = fmt.Sprintf("User %s\nGroup %s", "nobody", "nogroup")
		}
		return fmt.Sprintf(apacheConfig, w.temp.path, w.address, w.Dir, filepath.Join(w.deb, "usr/lib/apache2/modules"), user)
	case Nginx, NginxJSON, PythonWeb:
	}
	format := map[WebKind]string{Nginx: "html", NginxJSON: "json"}[w.kind]
	location := ""
	if w.before != "" {
		location = "location / { proxy_pass " + w.before + "; }"
	}
	return fmt.Sprintf(nginxConfig, w.temp.path, w.address, w.Dir, format, location)
}

func (w *Web) command() *exec.Cmd {
	var cmd *exec.Cmd
	switch w.kind {
	case PythonWeb:
		_, port, _ := net.SplitHostPort(w.address) // from ports.Free
		python, _ := find("python3")               // StartWeb found it
		cmd = exec.Command(python, "-m", "http.server", port, "--bind", localhost, "--directory", w.Dir)
	case Apache:
		cmd = exec.Command(filepath.Join(w.deb, "usr/sbin/apache2"), "-D", "FOREGROUND", "-f", w.config())
	case Nginx, NginxJSON:
		cmd = exec.Command(filepath.Join(w.deb, "usr/sbin/nginx"), "-p", w.temp.path, "-e", "stderr", "-c", w.config())
	}
	cmd.Dir = w.temp.path
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries(w.deb), ":"))
	return cmd
}

// Env are the variables by which tests find the server.
func (w *Web) Env() []string { return []string{"WEB=" + w.URL, "WEB_DIR=" + w.Dir} }

// Close ends the server.
func (w *Web) Close() error { return errors.Join(w.Kill(), w.temp.remove()) }

// libraries are the directories of shared libraries below a root.
func libraries(root string) []string {
	var dirs []string
	for _, pattern := range []string{"lib/*-linux-gnu*", "usr/lib/*-linux-gnu*"} {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the pattern is good
		dirs = append(dirs, found...)
	}
	return dirs
}
