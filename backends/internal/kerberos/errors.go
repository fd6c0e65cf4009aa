package kerberos

import (
	"errors"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/backends"
)

// meanings maps texts of gokrb5 and of the servers, which have no error values. The first match
// counts.
var meanings = []struct {
	phrase string
	kind   backends.Kind
	words  string
}{
	{"KRB_AP_ERR_SKEW", backends.Permission, "the clocks of this machine and the Kerberos server differ too much: synchronize them"},
	{"KRB_AP_ERR_TKT_NYV", backends.Permission, "the Kerberos ticket is not valid yet: synchronize the clocks of this machine and the Kerberos server"},
	{"KRB_AP_ERR_TKT_EXPIRED", backends.Permission, expired},
	{"no valid existing session", backends.Permission, expired},
	{"KDC_ERR_C_PRINCIPAL_UNKNOWN", backends.Permission, "the Kerberos server does not know the user of the keytab or ticket: klist -k lists the users in a keytab"},
	{"KDC_ERR_CLIENT_REVOKED", backends.Permission, "the Kerberos server has locked or disabled this user"},
	{"KDC_ERR_PREAUTH_FAILED", backends.Permission, oldKey},
	{"KDC_ERR_KEY_EXPIRED", backends.Permission, "this user's password has expired: an administrator must change it and export the keytab again"},
	{"client password/keytab incorrect", backends.Permission, oldKey},
	{"KDC_ERR_ETYPE_NOSUPP", backends.Permission, otherTypes},
	{"matching key not found in keytab", backends.Permission, otherTypes},
	{"KDC_ERR_S_PRINCIPAL_UNKNOWN", backends.Permission, "the Kerberos server has no such service: use the full host name, as in the service's principal"},
	{"no KDCs defined", backends.Invalid, noServer},
	{"does not have any defined KDCs", backends.Invalid, noServer},
	{"no KDC SRV records", backends.Invalid, noServer},
	{"Networking_Error", backends.Unavailable, "no Kerberos server of the realm responds"},
	{"communicat", backends.Unavailable, "no Kerberos server of the realm responds"},
}

const (
	expired    = "the Kerberos ticket has expired: run kinit again, or use a keytab, which stager renews itself"
	oldKey     = "the keytab's key is not the user's current key: export the keytab again"
	otherTypes = "the keytab has no key of a type that the Kerberos server accepts for this user: export it with aes256-cts"
	noServer   = "krb5.conf has no Kerberos server (kdc) for the realm"
)

// service matches the service principal of a failed request.
var service = regexp.MustCompile(`when requesting for (\S+):`)

// Meaning returns the kind and a readable text for an error of gokrb5 or one that quotes it. The
// text is "" if the error is not known.
func Meaning(err error) (backends.Kind, string) {
	text := err.Error()
	for _, m := range meanings {
		if !strings.Contains(text, m.phrase) {
			continue
		}
		if about := service.FindStringSubmatch(text); about != nil && m.phrase == "KDC_ERR_S_PRINCIPAL_UNKNOWN" {
			return m.kind, strings.Replace(m.words, "such service", "service "+about[1], 1)
		}
		return m.kind, m.words
	}
	return backends.Unknown, ""
}

// Explain converts an error of gokrb5 to a *backends.Error.
func Explain(err error) error {
	var done *backends.Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	kind, words := Meaning(err)
	if words == "" {
		return denied("cannot get a ticket from the Kerberos server: %w", err)
	}
	return &backends.Error{Op: "open", Kind: kind, Err: &reworded{words, err}}
}

// reworded is an error with another text.
type reworded struct {
	words string
	cause error
}

func (t *reworded) Error() string { return t.words }
func (t *reworded) Unwrap() error { return t.cause }
