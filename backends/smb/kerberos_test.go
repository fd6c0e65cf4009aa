package smb

import (
	"strings"
	"testing"
	"time"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/conformance"
	"github.com/stager-dev/stager/backends/conformance/live"
)

// openByTicket opens a share under the name in the principal of its server, cifs/localhost.
func openByTicket(t *testing.T, path string, changed ...string) (*backends.Store, error) {
	t.Helper()
	server := live.Start(t, "smb", "-kerberos", "-mode=encrypted")
	address := strings.Replace(server.Env["SMB_SERVER"], "127.0.0.1", "localhost", 1)
	if strings.HasPrefix(path, "ip/") {
		address, path = server.Env["SMB_SERVER"], path[3:]
	}
	changed = append(changed, "SMB_PASSWORD=")
	s, err := backends.NewRegistry(Scheme()).Open(t.Context(), "smb://"+address+"/"+path,
		backends.Options{Getenv: server.Getenv(changed...), RetryFor: time.Second})
	if err == nil {
		t.Cleanup(func() { s.Close() })
	}
	return s, err
}

func TestContractWithKerberos(t *testing.T) {
	server := live.Start(t, "smb", "-kerberos", "-mode=encrypted")
	cache := t.TempDir() + "/cache"
	server.Run(t, "kinit", "-k", "-t", server.Env["KRB5_CLIENT_KTNAME"], "-c", "FILE:"+cache, server.Env["SMB_USERNAME"])
	for name, env := range map[string]string{"keytab": "KRB5CCNAME=", "ticket": "KRB5CCNAME=FILE:" + cache} {
		if testing.Short() && name == "ticket" {
			continue // the keytab is for a ticket, too
		}
		t.Run(name, func(t *testing.T) {
			conformance.Run(t, func(t *testing.T) *backends.Store {
				changed := []string{env}
				if name == "ticket" {
					changed = append(changed, "KRB5_CLIENT_KTNAME=")
				}
				s, err := openByTicket(t, "data/"+name+"/", changed...)
				if err != nil {
					t.Fatal(err)
				}
				return s
			}, conformance.Options{MaxSize: 1 << 20, Many: 20, Without: []string{conformance.AnyOrder}, Unfit: func(key string) bool { return checkKey("create", key, true) != nil }})
		})
	}
}

func TestErrorsOfKerberos(t *testing.T) {
	server := live.Start(t, "smb", "-kerberos", "-mode=encrypted")
	cache := t.TempDir() + "/cache"
	server.Run(t, "kinit", "-l", "1s", "-k", "-t", server.Env["KRB5_CLIENT_KTNAME"], "-c", "FILE:"+cache, server.Env["SMB_USERNAME"])
	for _, tt := range []struct {
		what, path string
		env        []string
		words      string
	}{
		{"no ticket", "data/", []string{"KRB5_CLIENT_KTNAME=", "KRB5CCNAME=" + cache + "-none"}, "there is no keytab and no ticket"},
		{"a ticket of a daemon", "data/", []string{"KRB5_CLIENT_KTNAME=", "KRB5CCNAME=KCM:"}, "type KCM"},
		{"a ticket that expired", "data/", []string{"KRB5_CLIENT_KTNAME=", "KRB5CCNAME=FILE:" + cache}, "has expired"},
		{"an address for a name", "ip/data/", nil, "no service cifs/127.0.0.1"},
	} {
		var err error
		for err == nil || backends.KindOf(err) == backends.NotExist { // until the ticket of one second expires
			var s *backends.Store
			if s, err = openByTicket(t, tt.path, tt.env...); err == nil {
				_, err = s.Stat(t.Context(), "k")
			}
		}
		if backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: %v (%v), want kind permission and %q", tt.what, err, backends.KindOf(err), tt.words)
		}
	}
	server.Order(t, "shift kdc")
	s, err := openByTicket(t, "data/")
	if err == nil {
		_, err = s.Stat(t.Context(), "k")
	}
	if backends.KindOf(err) != backends.Permission || !strings.Contains(err.Error(), "clocks") {
		t.Errorf("with clocks that differ: %v, want kind permission and words of clocks", err)
	}
	server.Order(t, "set kdc")
}
