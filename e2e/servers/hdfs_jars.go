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
	"time"
)

// hadoopPOM names the release, the first that supports Java 17.
//
//go:embed hdfs_pom.xml
var hadoopPOM []byte

// copyDependencies is the plugin that fetches, by version.
const copyDependencies = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

// hadoopJars is a folder with the jars of a NameNode and a DataNode, and the java to
// run them. Maven fetches them the first time: about 70 MB of jars and 20 MB of its
// own plugins, eleven seconds where the repository is near. The folder is kept in the
// user's cache, Maven's repository where Maven keeps it.
func hadoopJars(ctx context.Context, progress io.Writer) (jars, java string, err error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", "", err
	}
	key := sha256.Sum256(append(hadoopPOM, copyDependencies...))
	jars = filepath.Join(cache, "stager-test-servers", fmt.Sprintf("hadoop-%x", key[:6]))
	_, missing := os.Stat(jars)
	var packages []string
	if java = javaHome(); java == "" {
		packages = append(packages, "openjdk-17-jre-headless")
	}
	if _, err := exec.LookPath("mvn"); missing != nil && err != nil {
		packages = append(packages, "maven")
	}
	if len(packages) > 0 {
		if err := installForHDFS(ctx, progress, packages); err != nil {
			return "", "", err
		}
		if java = javaHome(); java == "" {
			return "", "", errors.New("java is not there, though its package was installed")
		}
	}
	if missing == nil {
		return jars, java, nil
	}
	fmt.Fprintf(progress, "fetching the test server HDFS by Maven, about 90 MB, once; it runs on %s\n", describesJava(ctx, java))
	if err := os.MkdirAll(filepath.Dir(jars), 0o755); err != nil {
		return "", "", err
	}
	next, err := os.MkdirTemp(filepath.Dir(jars), "hadoop-next-")
	if err != nil {
		return "", "", err
	}
	defer os.RemoveAll(next) // gone if all went well
	if err := os.WriteFile(filepath.Join(next, "pom.xml"), hadoopPOM, 0o644); err != nil {
		return "", "", err
	}
	started := time.Now()
	cmd := exec.CommandContext(ctx, "mvn", "--batch-mode", "--quiet", copyDependencies, "-DincludeScope=runtime", "-DoutputDirectory=jars")
	cmd.Dir = next
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("fetching Hadoop's jars by Maven: %w\n%s", err, out)
	}
	// Two at once each fetch theirs; the first rename wins, and both are good.
	if err := os.Rename(filepath.Join(next, "jars"), jars); err != nil && !isDir(jars) {
		return "", "", err
	}
	fmt.Fprintf(progress, "fetched HDFS in %v\n", time.Since(started).Round(time.Second))
	return jars, java, nil
}

func isDir(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// installForHDFS installs packages of Debian, as root or by sudo without a password,
// and says so. apt-get's lists are refreshed only when they do not know the packages.
func installForHDFS(ctx context.Context, progress io.Writer, packages []string) error {
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return fmt.Errorf("HDFS needs %v, which only on Debian are installed by themselves", packages)
	}
	var as []string
	if os.Geteuid() != 0 {
		if err := exec.CommandContext(ctx, "sudo", "-n", "true").Run(); err != nil {
			return fmt.Errorf("HDFS needs %v: install them, or let sudo ask for no password", packages)
		}
		as = []string{"sudo", "-n"}
	}
	fmt.Fprintf(progress, "installing Debian's packages %v for the test server HDFS\n", packages)
	run := func(args ...string) error {
		line := append(append(as, "env", "DEBIAN_FRONTEND=noninteractive", apt), args...)
		cmd := exec.CommandContext(ctx, line[0], line[1:]...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("apt-get %v: %w\n%s", args, err, out)
		}
		return nil
	}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	if run(install...) == nil {
		return nil
	}
	if err := run("update"); err != nil {
		return err
	}
	return run(install...)
}
