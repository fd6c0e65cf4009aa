package ftp

import (
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// anonymous is the user of a login without credentials.
const anonymous = "anonymous"

// credentials returns the user and the password of a new connection.
func (d *dialer) credentials() (user, password string, err error) {
	look := objectstore.Lookup{Target: backends.Target{Options: d.opts}}
	first := func(file, variable string) string {
		text, err := objectstore.SecretFile(d.opts, file)
		if err != nil && look.Unread == nil {
			look.Unread = err
		}
		if text == "" {
			text = look.First("", variable)
		}
		return text
	}
	if user = d.user; user == "" {
		user = first("username", "FTP_USERNAME")
	}
	if user != "" && user != anonymous {
		password = first("password", "FTP_PASSWORD")
	}
	switch {
	case look.Unread != nil:
		return "", "", refused("cannot read the credentials: %w", look.Unread)
	case user == "":
		user = anonymous
	case strings.ContainsAny(user+password, "\r\n\x00"):
		return "", "", refused("the user or the password has more than one line")
	}
	if user == anonymous {
		password = "stager@" // servers want an address
	}
	return user, password, nil
}

// refused returns an error of kind Permission for a connection.
func refused(format string, args ...any) *backends.Error {
	return backends.Errorf(backends.Permission, "open", "", format, args...)
}
