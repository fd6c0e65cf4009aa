package servers

import (
	"encoding/base64"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
)

// Forward is an HTTP proxy as companies have it, which clients find by HTTP_PROXY and HTTPS_PROXY:
// it takes requests with whole URLs, and CONNECT. It knows the addresses of host names that nobody
// else can resolve, so that a client that reaches one of them came by the proxy.
type Forward struct {
	URL string

	server *httptest.Server
	hosts  map[string]string // HOST:PORT as clients say it → address

	mu    sync.Mutex // guards the fields below
	login string     // what Proxy-Authorization must be; "": nothing
	asked []string
}

// NewForward starts a proxy that knows these hosts: HOST:PORT → address.
func NewForward(hosts map[string]string) *Forward {
	f := &Forward{hosts: hosts}
	f.server = httptest.NewServer(f)
	f.URL = f.server.URL
	return f
}

// Close ends it.
func (f *Forward) Close() {
	f.server.CloseClientConnections()
	f.server.Close()
}

// Demand makes it refuse who does not give this user and password.
func (f *Forward) Demand(user, password string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.login = "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

// Asked returns the hosts it was asked for since the last call, in order, each once.
func (f *Forward) Asked() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	asked := f.asked
	f.asked = nil
	return asked
}

// ServeHTTP serves a client.
func (f *Forward) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	refused := f.login != "" && r.Header.Get("Proxy-Authorization") != f.login
	if !slices.Contains(f.asked, r.Host) {
		f.asked = append(f.asked, r.Host)
	}
	f.mu.Unlock()
	host := r.Host
	if r.Method != http.MethodConnect && r.URL.Port() == "" {
		host += ":80"
	}
	address, known := f.hosts[host]
	switch {
	case refused:
		w.Header().Set("Proxy-Authenticate", "Basic")
		w.Header().Set("Content-Type", "text/html") // as Squid does
		w.WriteHeader(http.StatusProxyAuthRequired)
		_, _ = io.WriteString(w, "<html><body>Who are you?</body></html>")
	case !known:
		http.Error(w, "there is no "+host, http.StatusBadGateway)
	case r.Method == http.MethodConnect:
		connect(w, address)
	default:
		r.Header.Del("Proxy-Authorization")
		to(&url.URL{Scheme: "http", Host: address}).ServeHTTP(w, r)
	}
}

// connect passes bytes to and from an address until both sides have ended.
func connect(w http.ResponseWriter, address string) {
	server, err := net.Dial("tcp", address)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer server.Close()
	w.WriteHeader(http.StatusOK)
	client, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	go func() {
		_, _ = io.Copy(server, buffered)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// to passes requests on as they are, to a server that must see the client's Host, which is signed.
func to(server *url.URL) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(server)
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{DisableCompression: true},
	}
}

// NewTLS starts a server that speaks TLS before another, as a load balancer does. Its certificate is
// for names in example.com.
func NewTLS(server string) (*httptest.Server, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	s := httptest.NewUnstartedServer(to(target))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // clients that do not trust it are a part of the tests
	s.StartTLS()
	return s, nil
}
