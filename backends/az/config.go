package az

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
	"github.com/stager-dev/stager/backends/internal/params"
)

const credentialsHelp = "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN or AZURE_STORAGE_CONNECTION_STRING, mount files of these names, give the pod a workload identity or the machine a managed one, or add ?anonymous=true for a public container."

// Schemes returns the schemes of az:// and abfss:// URLs.
func Schemes() []backends.Scheme {
	endpoint := backends.Param{Name: "endpoint", Summary: "the blob service's URL; else AZURE_STORAGE_SERVICE_ENDPOINT", Default: "that of the account, over HTTPS"}
	more := []backends.Param{
		endpoint,
		{Name: "anonymous", Summary: "true sends requests unsigned, for public containers", Default: "false"},
		{Name: "ca-bundle", Summary: "a PEM file of certificate authorities to trust; else AZURE_CA_BUNDLE", Default: "the system's"},
	}
	account := backends.Param{Name: "account", Summary: "the storage account; else AZURE_STORAGE_ACCOUNT_NAME", Default: "that of the connection string"}
	return []backends.Scheme{{
		Name:        "az",
		Summary:     "Azure Blob Storage",
		Example:     "az://container/directory/?account=myaccount",
		Params:      append([]backends.Param{account}, more...),
		Credentials: credentialsHelp,
		Open:        open,
		Buckets:     listContainers,
	}, {
		Name:        "abfss",
		Summary:     "Azure Blob Storage, by the URLs of Data Lake Storage",
		Example:     "abfss://container@myaccount.dfs.core.windows.net/directory/",
		Params:      more,
		Credentials: credentialsHelp,
		Open:        open,
	}}
}

// place is where a Target is.
type place struct {
	endpoint  string // of the account, without a trailing slash
	account   string
	container string // "" in a URL that names none
	known     bool   // the endpoint is derived from the account
	azure     bool   // the server is Azure itself, and no emulator
	anonymous bool
	caBundle  string
}

var (
	containerName = regexp.MustCompile(`^([a-z0-9](-?[a-z0-9])+|\$root|\$web|\$logs)$`)
	accountName   = regexp.MustCompile(`^[a-z0-9]{3,24}$`)
)

func invalid(format string, args ...any) error {
	return backends.Errorf(backends.Invalid, "open", "", format, args...)
}

// parse finds the account, the container and the endpoint.
func parse(t backends.Target) (place, error) {
	from := objectstore.Lookup{Target: t}
	p := place{container: t.Host, caBundle: from.First("ca-bundle", "AZURE_CA_BUNDLE")}
	endpoint, suffix := from.First("endpoint", "AZURE_STORAGE_SERVICE_ENDPOINT"), "core.windows.net"
	if t.Scheme == "abfss" {
		host, rest, ok := strings.Cut(t.Host, ".")
		rest, ok2 := strings.CutPrefix(rest, "dfs.")
		if !ok || !ok2 || t.User == "" {
			return p, invalid("an abfss URL looks like abfss://container@account.dfs.core.windows.net/directory/")
		}
		p.container, p.account, suffix = t.User, host, rest
	} else if t.User != "" {
		return p, invalid("an az URL starts with the container, as in az://container/directory/; name the account by ?account=")
	}
	if n := len(p.container); p.container != "" && (n < 3 || n > 63 || !containerName.MatchString(p.container)) {
		return p, invalid("a container has 3 to 63 letters a-z, digits and single \"-\", as in az://container/directory/; name the account by ?account=")
	}
	p.account = cmp.Or(p.account, from.First("account", "AZURE_STORAGE_ACCOUNT_NAME"), from.First("", "AZURE_STORAGE_ACCOUNT"))
	if text := from.First("", connectionString); text != "" {
		c, err := parseConnection(text)
		if err != nil {
			return p, err
		}
		p.account = cmp.Or(p.account, c.account)
		if c.account == "" || c.account == p.account {
			endpoint = cmp.Or(endpoint, c.endpoint)
			suffix = cmp.Or(c.suffix, suffix)
		}
	}
	if from.Unread != nil {
		return p, invalid("cannot read the files with the account and the endpoint: %w", from.Unread)
	}
	if err := params.Read(t.Params, params.Bool("anonymous", &p.anonymous)); err != nil {
		return p, err
	}
	return p.at(endpoint, suffix)
}

// at completes a place with its endpoint; "" stands for the one of the account.
func (p place) at(endpoint, suffix string) (place, error) {
	if endpoint == "" {
		switch {
		case p.account == "":
			return p, invalid("the storage account is unknown: set ?account= or AZURE_STORAGE_ACCOUNT_NAME")
		case !accountName.MatchString(p.account):
			return p, invalid("a storage account has 3 to 24 letters a-z and digits, not %q", p.account)
		}
		p.endpoint, p.known, p.azure = "https://"+p.account+".blob."+suffix, true, true
		return p, nil
	}
	if !strings.Contains(endpoint, "://") {
		endpoint = "https://" + endpoint
	}
	u, err := objectstore.ParseEndpoint(endpoint)
	if err != nil {
		return p, invalid("the endpoint must look like https://account.blob.core.windows.net")
	}
	path := strings.Trim(u.Path, "/")
	if byName := strings.Contains(u.Hostname(), ".") && net.ParseIP(u.Hostname()) == nil; byName && path == "" {
		host, _, _ := strings.Cut(u.Hostname(), ".")
		p.account = cmp.Or(p.account, host)
		p.azure = strings.Contains(u.Hostname(), ".blob.")
	} else { // an emulator, whose paths begin with the account
		p.account = cmp.Or(p.account, path)
		path = cmp.Or(path, p.account)
	}
	if p.account == "" {
		return p, invalid("the storage account is unknown: set ?account= or AZURE_STORAGE_ACCOUNT_NAME")
	}
	p.endpoint = strings.TrimSuffix(u.Scheme+"://"+u.Host+"/"+path, "/")
	return p, nil
}

func open(_ context.Context, t backends.Target) (backends.Opened, error) {
	s, err := newStore(t)
	if err == nil && s.name == "" {
		err = invalid("an az URL starts with the container, as in az://container/directory/; \"stager ls az://\" lists the containers")
	}
	if err != nil {
		return backends.Opened{}, err
	}
	return backends.Opened{Backend: s, Prefix: t.Path}, nil
}

// newStore returns a store without sending a request.
func newStore(t backends.Target) (*store, error) {
	p, err := parse(t)
	if err != nil {
		return nil, err
	}
	a, err := newAccess(t.Options, p)
	if err != nil {
		return nil, err
	}
	s := &store{name: p.container, account: p.account, access: a, log: t.Log}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	return s, nil
}
