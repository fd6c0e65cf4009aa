package plan

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// SecretKey is a key of a Secret and the name of the credential file that it becomes.
type SecretKey struct{ Key, Name string }

// keyForm matches the keys of a Secret, of up to maxKey bytes, as Kubernetes does.
var keyForm = regexp.MustCompile(`^[-._a-zA-Z0-9]+$`)

const maxKey = 253

// ParseSecretKeys parses entries such as akId:OSS_ACCESS_KEY_ID, or OSS_ENDPOINT for a key that has
// the right name. Its errors never repeat text that may be a secret.
func ParseSecretKeys(entries []string) ([]SecretKey, error) {
	var keys []SecretKey
	for i, entry := range entries {
		key, name, renamed := strings.Cut(entry, ":")
		if !renamed {
			name = key
		}
		for _, part := range []string{key, name} {
			if len(part) > maxKey || !keyForm.MatchString(part) || strings.HasPrefix(part, "..") || part == "." {
				return nil, fmt.Errorf("entry %d is not KEY:NAME with a key of the Secret and the name of a credential, such as akId:OSS_ACCESS_KEY_ID", i+1)
			}
		}
		if slices.ContainsFunc(keys, func(k SecretKey) bool { return k.Name == name }) {
			return nil, fmt.Errorf("%s appears twice; write each name once", name)
		}
		keys = append(keys, SecretKey{key, name})
	}
	return keys, nil
}

// secret checks credentials. A Secret is mounted once, so it has the same keys wherever it is used.
func (c *checker) secret(at string, cred Credentials) {
	at += ".credentials"
	if cred.Secret != "" && !subdomain(cred.Secret) {
		c.add(at+".secret", "invalid Secret name %q: use only a-z, 0-9, - and .", cred.Secret)
	}
	if cred.Secret == "" {
		if len(cred.Keys) > 0 {
			c.add(at+".keys", "the keys are those of a Secret: set secret too")
		}
		return
	}
	if _, err := ParseSecretKeys(cred.Keys); err != nil {
		c.add(at+".keys", "%v", err)
		return
	}
	if c.secretKeys == nil {
		c.secretKeys = make(map[string][]string)
	}
	before, known := c.secretKeys[cred.Secret]
	if known && !slices.Equal(before, cred.Keys) {
		c.add(at+".keys", "the Secret %s has other keys in an input or output before; write the same keys wherever it is used", cred.Secret)
		return
	}
	c.secretKeys[cred.Secret] = cred.Keys
}
