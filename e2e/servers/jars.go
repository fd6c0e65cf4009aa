package servers

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
)

// jars are what Maven fetches for a server that is written in Java.
type jars struct {
	name string // as people know the server
	pom  []byte // which releases
	size string // of all that is fetched, such as "90 MB"
}

// hadoopPOM names the release, the first that supports Java 17.
//
//go:embed hdfs_pom.xml
var hadoopPOM []byte

// hadoopJars are those of a NameNode and a DataNode: about 70 MB, and 20 MB of Maven's own
// plugins, in eleven seconds where the repository is near.
var hadoopJars = jars{name: "hadoop", pom: hadoopPOM, size: "90 MB"}

// copyDependencies is the plugin that fetches, by version.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// dir is the directory with the jars, in the user's cache.
func (j jars) dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(append(j.pom[:len(j.pom):len(j.pom)], copyDependencies...))
	return filepath.Join(cache, "stager-test-servers", fmt.Sprintf("%s-%x", j.name, key[:6])), nil
}

// missing is nil when the jars lie in a directory.
func (j jars) missing(directory string) error {
	if info, err := os.Stat(directory); err != nil || !info.IsDir() {
		return fmt.Errorf("the jars of %s are not on this machine", j.name)
	}
	return nil
}

// java is the program, "" when there is none.
func java() string {
	path, err := exec.LookPath(filepath.Join(os.Getenv("JAVA_HOME"), "bin", "java"))
	if err != nil {
		path, _ = find("java") // "" is the answer
	}
	return path
}

func javaMissing() error {
	if java() == "" {
		return errors.New("there is no java on this machine")
	}
	return nil
}

// install installs Java and has Maven fetch the jars. Maven's repository stays where Maven
// keeps it.
func (j jars) install(ctx context.Context, progress io.Writer) error {
	directory, err := j.dir()
	if err != nil {
		return err
	}
	if err := install(ctx, progress, javaMissing, "default-jre-headless"); err != nil {
		return err
	}
	if j.missing(directory) == nil {
		return nil
	}
	mavenMissing := func() error { _, err := find("mvn"); return err }
	if err := install(ctx, progress, mavenMissing, "maven"); err != nil {
		return err
	}
	fmt.Fprintf(progress, "fetching the test server %s by Maven, about %s, once\n", j.name, j.size)
	if err := os.MkdirAll(filepath.Dir(directory), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(directory), j.name+"-next-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next) // what it had is in its place
	if err := os.WriteFile(filepath.Join(next, "pom.xml"), j.pom, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", copyDependencies, "-DincludeScope=runtime", "-DoutputDirectory=jars")
	cmd.Dir = next
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching the jars of %s by Maven: %w\n%s", j.name, err, out)
	}
	// Two at once each fetch theirs; the first rename wins, and both are good.
	if err := os.Rename(filepath.Join(next, "jars"), directory); err != nil && j.missing(directory) != nil {
		return err
	}
	return nil
}

// found is the classpath of jars that install fetched. The error names what installs them.
func (j jars) found(name string) (classpath string, err error) {
	directory, err := j.dir()
	if err == nil {
		err = errors.Join(javaMissing(), j.missing(directory))
	}
	if err != nil {
		return "", notHere(name, err)
	}
	return filepath.Join(directory, "*"), nil
}
