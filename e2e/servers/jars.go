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

// hadoopPOM names the release, the first that supports Java 17.
//
//go:embed hdfs_pom.xml
var hadoopPOM []byte

// copyDependencies is the plugin that fetches, by version.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// hadoopJars is the folder with the jars of a NameNode and a DataNode, in the user's
// cache.
func hadoopJars() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := sha256.Sum256(append(hadoopPOM, copyDependencies...))
	return filepath.Join(cache, "stager-test-servers", fmt.Sprintf("hadoop-%x", key[:6])), nil
}

func jarsMissing(jars string) error {
	if info, err := os.Stat(jars); err != nil || !info.IsDir() {
		return errors.New("the jars of Hadoop are not on this machine")
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

// installHDFS installs Java and has Maven fetch the jars: about 70 MB, and 20 MB of
// its own plugins, in eleven seconds where the repository is near. Maven's repository
// stays where Maven keeps it.
func installHDFS(ctx context.Context, progress io.Writer) error {
	jars, err := hadoopJars()
	if err != nil {
		return err
	}
	if err := install(ctx, progress, javaMissing, "default-jre-headless"); err != nil {
		return err
	}
	if jarsMissing(jars) == nil {
		return nil
	}
	mavenMissing := func() error { _, err := find("mvn"); return err }
	if err := install(ctx, progress, mavenMissing, "maven"); err != nil {
		return err
	}
	fmt.Fprintln(progress, "fetching the test server HDFS by Maven, about 90 MB, once")
	if err := os.MkdirAll(filepath.Dir(jars), 0o755); err != nil {
		return err
	}
	next, err := os.MkdirTemp(filepath.Dir(jars), "hadoop-next-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(next) // what it had is in its place
	if err := os.WriteFile(filepath.Join(next, "pom.xml"), hadoopPOM, 0o644); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", copyDependencies, "-DincludeScope=runtime", "-DoutputDirectory=jars")
	cmd.Dir = next
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetching Hadoop's jars by Maven: %w\n%s", err, out)
	}
	// Two at once each fetch theirs; the first rename wins, and both are good.
	if err := os.Rename(filepath.Join(next, "jars"), jars); err != nil && jarsMissing(jars) != nil {
		return err
	}
	return nil
}
