package git

import (
	"encoding/base64"
	"strings"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/internal/objectstore"
)

// defaultUser is sent with a password without a user: servers ignore the user of a token.
const defaultUser = "git"

// authorization returns the Authorization header; "" without credentials.
func authorization(opts backends.Options, user string) (string, error) {
	look := objectstore.Lookup{Target: backends.Target{Options: opts}}
	first := func(file, variable string) string {
		text, err := objectstore.SecretFile(opts, file)
		if err != nil && look.Unread == nil {
			look.Unread = err
		}
		if text == "" {
			text = look.First("", variable)
		}
		return text
	}
	if user == "" {
		user = first("username", "GIT_USERNAME")
	}
	password := first("password", "GIT_PASSWORD")
	switch {
	case look.Unread != nil:
		return "", backends.Errorf(backends.Permission, "open", "", "cannot read the credentials: %w", look.Unread)
	case strings.ContainsAny(user+password, "\r\n\x00"):
		return "", backends.Errorf(backends.Permission, "open", "", "the user or the password has more than one line")
	case password == "":
		return "", nil
	case user == "":
		user = defaultUser
	}
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(user+":"+password)), nil
}
