package servers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Protocols are those that have a server here. Install knows "hf", "python", "pytorch"
// and "streaming" too, for trainers, and "foreign", "foreign-more", "minio" and "unfs3",
// servers of other projects, "prometheus", "helm" and "krew", for rules, the chart and the plugin of kubectl, and "xfs", the file system.
var Protocols = []string{"s3", "oss", "gs", "az", "smb", "nfs", "hdfs", "http", "sftp", "ftp", "git"}

// Install sees to all that the server of a protocol needs on this machine, once, and
// tells progress what it builds, fetches and installs. Packages are Debian's; to
// install them it must be root, or sudo must ask for no password. Its error says why
// the server cannot run here.
func Install(ctx context.Context, protocol string, progress io.Writer) error {
	switch protocol {
	case "oss", "gs": // a double of it is a part of these tests
		return nil
	case "s3":
		if _, err := buildGateway(ctx, progress); err != nil {
			return err
		}
		_, err := Unpack(ctx, progress, cephPackages...)
		return err
	case "az":
		return azurite.install(ctx, progress)
	case "smb":
		if err := needsRoot(protocol); err != nil {
			return err
		}
		if err := install(ctx, progress, sambaMissing, "samba"); err != nil {
			return err
		}
		return installKDC(ctx, progress)
	case "nfs":
		if err := needsRoot(protocol); err != nil {
			return err
		}
		return install(ctx, progress, ganeshaMissing, "nfs-ganesha", "nfs-ganesha-vfs")
	case "hdfs":
		if err := hadoopJars.install(ctx, progress); err != nil {
			return err
		}
		return installKDC(ctx, progress)
	case "http":
		if err := install(ctx, progress, pythonMissing, "python3"); err != nil {
			return err
		}
		_, err := Unpack(ctx, progress, webPackages...)
		return err
	case "sftp":
		_, err := Unpack(ctx, progress, sshdPackages...)
		return err
	case "ftp":
		if err := needsRoot(protocol); err != nil {
			return err
		}
		for _, packages := range ftpPackages {
			if _, err := Unpack(ctx, progress, packages...); err != nil {
				return err
			}
		}
		return nil
	case "git":
		return install(ctx, progress, gitMissing, "git")
	case "hf": // its server is a fake
		return hubWheels.install(ctx, progress, hubModules)
	case "python":
		return install(ctx, progress, pythonMissing, "python3")
	case "pytorch":
		return errors.Join(pytorchWheels.install(ctx, progress, torchModules), pythonToolWheels.install(ctx, progress, torchModules), pyright.install(ctx, progress))
	case "streaming":
		return streamingWheels.install(ctx, progress, streamingModules)
	case "prometheus":
		_, err := Unpack(ctx, progress, prometheusPackages...)
		return err
	case "helm":
		_, err := BuildProgram(ctx, "helm-4", progress)
		return err
	case "krew":
		_, err := BuildProgram(ctx, "krew", progress)
		return err
	case "xfs":
		return installXFS(ctx, progress)
	case "minio":
		_, err := buildMinIO(ctx, progress)
		return err
	case "unfs3":
		return unfs3Missing()
	case foreign, foreignMore:
		return installForeign(ctx, protocol, progress)
	}
	return fmt.Errorf("unknown requirement %q", protocol)
}

// needsRoot is an error where only root could run the server of a protocol.
func needsRoot(protocol string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("root alone can run a server of %s", protocol)
	}
	return nil
}

// asRoot is what to write before a command that must be root's: nothing, or sudo.
func asRoot() ([]string, error) {
	if os.Geteuid() == 0 {
		return nil, nil
	}
	if exec.Command("sudo", "-n", "true").Run() != nil {
		return nil, errors.New("it takes root, which this is not, nor does sudo give it without a password")
	}
	return []string{"sudo", "-n"}, nil
}

// exclusive lets one goroutine at a time do what has a name: install packages of Debian, or what several
// servers need.
func exclusive(name string) (end func()) {
	mu, _ := installing.LoadOrStore(name, new(sync.Mutex))
	mu.(*sync.Mutex).Lock()
	return mu.(*sync.Mutex).Unlock
}

var installing sync.Map // of *sync.Mutex, by name

// install installs packages of Debian when something is missing. The lists of
// packages are refreshed only when they do not know them.
func install(ctx context.Context, progress io.Writer, missing func() error, packages ...string) error {
	defer exclusive("dpkg")()
	why := missing()
	if why == nil {
		return nil
	}
	names := strings.Join(packages, " ")
	apt, err := find("apt-get")
	if err != nil {
		return fmt.Errorf("%w; on Debian %s would be installed", why, names)
	}
	if _, err := asRoot(); err != nil {
		return fmt.Errorf("%w, and cannot be installed: %w; as root: apt-get install %s", why, err, names)
	}
	fmt.Fprintln(progress, "installing Debian's", names)
	get := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	if aptGet(ctx, apt, get...) != nil {
		refreshed := aptGet(ctx, apt, "update")
		if err := aptGet(ctx, apt, get...); err != nil {
			return errors.Join(refreshed, err)
		}
	}
	return missing()
}

// aptGet runs apt-get as root.
func aptGet(ctx context.Context, apt string, args ...string) error {
	sudo, err := asRoot()
	if err != nil {
		return err
	}
	line := append(sudo, "env", "DEBIAN_FRONTEND=noninteractive", apt, "-qq", "-o", "DPkg::Lock::Timeout=300")
	line = append(line, args...)
	if out, err := exec.CommandContext(ctx, line[0], line[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("apt-get %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// notHere is the error of a server that was not installed.
func notHere(protocol string, why error) error {
	return fmt.Errorf("%w: \"go run ./cmd/server install %s\" in e2e installs it", why, protocol)
}

// find is where a program lies, also when it lies where only root looks.
func find(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/local/sbin", "/usr/sbin", "/sbin"} {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return path, nil
		}
	}
	return "", fmt.Errorf("there is no %s on this machine", name)
}
