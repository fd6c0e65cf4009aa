package git

import (
	"context"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/stager-dev/stager/backends"
)

var (
	hashForm = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)
	// shortForm matches what may be the beginning of a hash.
	shortForm = regexp.MustCompile(`^[0-9a-f]{7,63}$`)
)

// resolve returns the hash of a revision: a branch, a tag, a full name of a reference, or a hash.
func (r *remote) resolve(ctx context.Context, revision string) (string, error) {
	if hashForm.MatchString(revision) {
		return revision, nil
	}
	names := []string{"refs/heads/" + revision, "refs/tags/" + revision}
	switch {
	case revision == "" || revision == "HEAD":
		names = []string{"HEAD"}
	case strings.HasPrefix(revision, "refs/"):
		names = []string{revision}
	}
	found, err := r.references(ctx, names)
	if err != nil {
		return "", err
	}
	var hash string
	for _, name := range names {
		switch {
		case hash != "" && found[name] != "" && found[name] != hash:
			return "", backends.Errorf(backends.Invalid, "open", "", "the repository has a branch and a tag named %[1]q: write @refs/heads/%[1]s or @refs/tags/%[1]s", revision)
		case hash == "":
			hash = found[name]
		}
	}
	switch {
	case hash != "":
		return hash, nil
	case names[0] == "HEAD":
		return "", backends.Errorf(backends.NotExist, "open", "", "the repository has no commit, or no default branch: write @ and a branch after its path")
	case shortForm.MatchString(revision):
		return "", backends.Errorf(backends.NotExist, "open", "", "the repository has no branch or tag %q: write all 40 digits of a commit", revision)
	}
	return "", backends.Errorf(backends.NotExist, "open", "", "the repository has no branch or tag %q", revision)
}

// references returns the hashes of those of the references that exist; of an annotated tag, that of its
// commit.
func (r *remote) references(ctx context.Context, names []string) (map[string]string, error) {
	args := []string{"peel"}
	for _, name := range names {
		args = append(args, "ref-prefix "+name)
	}
	in, body, err := r.call(ctx, "ls-refs", args)
	if err != nil {
		return nil, err
	}
	defer body.Close() // it was read
	found := make(map[string]string)
	for range maxLines {
		line, more, err := in.line()
		if err != nil || !more {
			return found, err
		}
		words := strings.Fields(line)
		if len(words) < 2 || !hashForm.MatchString(words[0]) {
			continue // such as an unborn branch
		}
		hash := words[0]
		for _, word := range words[2:] {
			if peeled, ok := strings.CutPrefix(word, "peeled:"); ok && hashForm.MatchString(peeled) {
				hash = peeled
			}
		}
		found[words[1]] = hash
	}
	return nil, errNoPacket
}

// fetch asks for objects and adds them. args are those of the command fetch.
func (r *remote) fetch(ctx context.Context, to *objects, wanted []string, args ...string) error {
	args = append(args, "ofs-delta")
	for _, id := range wanted {
		args = append(args, "want "+hex.EncodeToString([]byte(id)))
	}
	in, body, err := r.call(ctx, "fetch", append(args, "done"))
	if err != nil {
		return err
	}
	defer body.Close() // it was read
	for range maxLines {
		line, _, err := in.line()
		if err != nil {
			return err
		}
		if line == "packfile" {
			return to.unpack(&pack{from: in})
		}
	}
	return errNoPacket
}
