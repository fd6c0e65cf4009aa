package release

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/mail"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/stager-dev/stager/e2e/image"
	"github.com/stager-dev/stager/e2e/reference"
)

// Platforms are those of a release. Only Linux has packages, and an image with its chart: on macOS
// stager copies data, and does not serve a job.
var Platforms = []Platform{{"linux", "amd64"}, {"linux", "arm64"}, {"darwin", "arm64"}}

// Platform is a system and an architecture, as Go calls them.
type Platform struct{ System, Arch string }

// ParsePlatform parses a platform such as linux/amd64.
func ParsePlatform(text string) (Platform, error) {
	system, arch, _ := strings.Cut(text, "/")
	p := Platform{system, arch}
	if !slices.Contains(Platforms, p) {
		return p, fmt.Errorf("%q is not one of %v", text, Platforms)
	}
	return p, nil
}

func (p Platform) String() string { return p.System + "/" + p.Arch }

// Options define a release.
type Options struct {
	Source     string     // directory of the product's module
	Out        string     // directory to write, which must not exist or hold an earlier release
	Version    string     // such as 0.1.0; a leading v is removed
	Commit     string     // what the version is built from; "": unknown
	Date       time.Time  // of all files; a clock would change their sums
	Repository string     // of the image, such as registry.example.com/stager; "": localhost/stager, and stager has no default image
	URL        string     // where the files will be, such as https://example.com/stager; "": unknown
	Maintainer string     // of the packages, such as Ada <ada@example.com>; "": root of the machine, where Debian requires one
	Platforms  []Platform // nil: all of Platforms
}

// semver is a version without build metadata, which deb, rpm and wheels cannot carry.
var semver = regexp.MustCompile(`^(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z]+(\.[0-9A-Za-z]+)*)?$`)

// repository is the name of an image with its registry. A name without a dot, a port or localhost in
// its first part is resolved to a public registry.
var repository = regexp.MustCompile(`^(localhost|[a-zA-Z0-9-]+(\.[a-zA-Z0-9-]+)+|[a-zA-Z0-9.-]+:[0-9]+)(/[a-z0-9]+([._-]+[a-z0-9]+)*)+$`)

// Make writes the release. Out appears when it is complete, or stays as it was.
func Make(ctx context.Context, opts Options) error {
	opts.Version = strings.TrimPrefix(opts.Version, "v")
	if !semver.MatchString(opts.Version) {
		return fmt.Errorf("version %q is not a release version: give one such as 0.1.0 or 0.2.0-rc.1", opts.Version)
	}
	if opts.Maintainer != "" {
		if at, err := mail.ParseAddress(opts.Maintainer); err != nil || at.Name == "" {
			return fmt.Errorf("maintainer %q is not a name and an address, such as Ada <ada@example.com>", opts.Maintainer)
		}
	}
	if opts.Repository != "" && !repository.MatchString(opts.Repository) {
		return fmt.Errorf("repository %q is not the full name of an image without a tag, such as registry.example.com/stager", opts.Repository)
	}
	if at, err := url.Parse(opts.URL); opts.URL != "" && (err != nil || at.Scheme != "https" || at.Host == "" || at.User != nil) {
		return fmt.Errorf("url %q is not where files can be downloaded, such as https://example.com/stager", opts.URL)
	}
	if opts.Date.Unix() <= 0 {
		return errors.New("no date: give that of the commit, which all files get")
	}
	if opts.Platforms == nil {
		opts.Platforms = Platforms
	}
	if err := replaceable(opts.Out); err != nil {
		return err
	}
	parent := filepath.Dir(filepath.Clean(opts.Out))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(parent, ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r := &release{Options: opts, dir: filepath.Join(work, "new"), work: work}
	if err := r.write(ctx); err != nil {
		return err
	}
	if err := os.RemoveAll(opts.Out); err != nil {
		return err
	}
	return os.Rename(r.dir, opts.Out)
}

// replaceable returns an error if dir holds something else than a release.
func replaceable(dir string) error {
	found, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || err == nil && len(found) == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, sumsFile)); err != nil {
		return fmt.Errorf("%s is not empty and holds no release: choose another directory, or empty it", dir)
	}
	return nil
}

// release is one in the making.
type release struct {
	Options

	dir  string // what becomes Out
	work string // for files that are not part of it

	license, notices []byte            // stager's own, and those of all that is linked into it
	completions      map[string][]byte // by shell
	manual           map[string][]byte // man pages, by their names
}

// write writes all files into dir.
func (r *release) write(ctx context.Context) error {
	if err := os.Mkdir(r.dir, 0o755); err != nil {
		return err
	}
	if err := r.prepare(ctx); err != nil {
		return err
	}
	return r.files(ctx)
}

// files writes the files of each platform, and those of all of them.
func (r *release) files(ctx context.Context) error {
	var images []image.Image
	for _, p := range r.Platforms {
		binary, err := r.build(ctx, p)
		if err != nil {
			return err
		}
		if err := r.archive(p, binary); err != nil {
			return err
		}
		if p.System != "linux" {
			continue
		}
		if err := errors.Join(r.deb(p.Arch, binary), r.rpm(p.Arch, binary), r.wheel(p.Arch, binary)); err != nil {
			return err
		}
		images = append(images, image.Release(r.image(), p.Arch, binary))
	}
	if len(images) > 0 {
		if err := errors.Join(r.imageArchive(images), r.chart()); err != nil {
			return err
		}
	}
	if err := errors.Join(r.installer(), r.krew(), r.monitoring()); err != nil {
		return err
	}
	return r.sums()
}

// imageArchive writes the image of all architectures.
func (r *release) imageArchive(images []image.Image) error {
	var index bytes.Buffer
	if _, err := image.WriteIndex(&index, images...); err != nil {
		return err
	}
	return r.file(fmt.Sprintf("stager_%s_image.tar", r.Version), index.Bytes(), 0o644)
}

// image is the name of the image.
func (r *release) image() string { return cmp.Or(r.Repository, "localhost/stager") + ":" + r.Version }

// prepare makes what the packages of all platforms have.
func (r *release) prepare(ctx context.Context) (err error) {
	if r.license, err = os.ReadFile(filepath.Join(r.Source, "LICENSE")); err != nil {
		return err
	}
	modules, err := r.modules(ctx)
	if err != nil {
		return err
	}
	r.notices = notices(modules)
	if err := r.sbom(modules); err != nil {
		return err
	}
	own := Platform{runtime.GOOS, runtime.GOARCH}
	if _, err := r.build(ctx, own); err != nil {
		return err
	}
	r.completions = make(map[string][]byte)
	for _, shell := range []string{"bash", "fish", "zsh"} {
		out, err := exec.CommandContext(ctx, r.binary(own), "completion", shell).Output()
		if err != nil {
			return fmt.Errorf("asking stager for the completions of %s: %w", shell, err)
		}
		r.completions[shell] = out
	}
	out, err := exec.CommandContext(ctx, r.binary(own), "reference").Output()
	if err != nil {
		return fmt.Errorf("asking stager for its command line: %w", err)
	}
	line, err := reference.ParseCLI(out)
	if err != nil {
		return err
	}
	r.manual = reference.ManPages(line, r.Version)
	return nil
}

// binary is where build writes.
func (r *release) binary(p Platform) string {
	return filepath.Join(r.work, "stager-"+p.System+"-"+p.Arch)
}

// build returns the static binary of a platform.
func (r *release) build(ctx context.Context, p Platform) ([]byte, error) {
	out := r.binary(p)
	if binary, err := os.ReadFile(out); err == nil {
		return binary, nil
	}
	flags := fmt.Sprintf("-s -w -X main.version=%s -X main.commit=%s", r.Version, r.Commit)
	if r.Repository != "" {
		flags += " -X main.image=" + r.image()
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", out, "./cmd/stager")
	cmd.Dir, cmd.Stderr, cmd.Env = r.Source, os.Stderr, goEnv(p)
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("building stager for %s: %w", p, err)
	}
	return os.ReadFile(out)
}

// goEnv is the environment in which go builds for a platform. What a user may have set does not
// change the binary, which needs the lowest instruction set only.
func goEnv(p Platform) []string {
	return append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.System, "GOARCH="+p.Arch, "GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOFIPS140=off", "GOWORK=off")
}

// archiveName is the name of the archive of a platform.
func (r *release) archiveName(p Platform) string {
	return fmt.Sprintf("stager_%s_%s_%s.tar.gz", r.Version, p.System, p.Arch)
}

// archive writes the archive of a platform: the binary and what belongs to it.
func (r *release) archive(p Platform, binary []byte) error {
	files := []image.File{
		{Path: "stager", Mode: 0o755, Body: binary},
		{Path: "LICENSE", Mode: 0o644, Body: r.license},
		{Path: "THIRD_PARTY_LICENSES", Mode: 0o644, Body: r.notices},
	}
	for shell, text := range r.completions {
		files = append(files, image.File{Path: "completions/stager." + shell, Mode: 0o644, Body: text})
	}
	for _, name := range slices.Sorted(maps.Keys(r.manual)) {
		files = append(files, image.File{Path: "man/" + name, Mode: 0o644, Body: r.manual[name]})
	}
	body, err := r.tarball(files)
	if err != nil {
		return err
	}
	return r.file(r.archiveName(p), body, 0o644)
}

// file writes a file of the release.
func (r *release) file(name string, body []byte, mode fs.FileMode) error {
	path := filepath.Join(r.dir, name)
	return errors.Join(os.WriteFile(path, body, mode), os.Chmod(path, mode), os.Chtimes(path, r.Date, r.Date))
}

// sumsFile lists all other files of a release.
const sumsFile = "SHA256SUMS"

// sums writes the sums of all files that are in dir.
func (r *release) sums() error {
	text, err := r.sumsOf(func(string) bool { return true })
	if err != nil {
		return err
	}
	return r.file(sumsFile, []byte(text), 0o644)
}

// sumsOf returns lines as sha256sum prints them, in the order of the names.
func (r *release) sumsOf(wanted func(name string) bool) (string, error) {
	found, err := os.ReadDir(r.dir)
	if err != nil {
		return "", err
	}
	var lines []string
	for _, f := range found {
		if !wanted(f.Name()) {
			continue
		}
		body, err := os.ReadFile(filepath.Join(r.dir, f.Name()))
		if err != nil {
			return "", err
		}
		lines = append(lines, fmt.Sprintf("%x  %s\n", sha256.Sum256(body), f.Name()))
	}
	slices.SortFunc(lines, func(a, b string) int { return strings.Compare(a[64:], b[64:]) })
	return strings.Join(lines, ""), nil
}
