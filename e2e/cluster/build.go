package cluster

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/stager-dev/stager/e2e/servers"
)

// version of Kubernetes, as modules/kubernetes/go.mod has it.
const version = "1.36.3"

// part is one program that a cluster needs, and where its source is.
type part struct{ name, module, pkg, flags string }

// controlParts are an API server and what it takes to ask it.
var controlParts = []part{
	{"etcd", "etcd", "go.etcd.io/etcd/server/v3", "-s -w"},
	{"kube-apiserver", "kubernetes", "k8s.io/kubernetes/cmd/kube-apiserver", kubernetesFlags},
	{"kubectl", "kubernetes", "k8s.io/kubernetes/cmd/kubectl", kubernetesFlags},
}

// nodeParts are what runs jobs, besides.
var nodeParts = []part{
	{"kube-controller-manager", "kubernetes", "k8s.io/kubernetes/cmd/kube-controller-manager", kubernetesFlags},
	{"kube-scheduler", "kubernetes", "k8s.io/kubernetes/cmd/kube-scheduler", kubernetesFlags},
	{"kubelet", "kubernetes", "k8s.io/kubernetes/cmd/kubelet", kubernetesFlags},
	{"containerd", "containerd", "github.com/containerd/containerd/v2/cmd/containerd", "-s -w"},
	{"containerd-shim-runc-v2", "containerd", "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2", "-s -w"},
	{"ctr", "containerd", "github.com/containerd/containerd/v2/cmd/ctr", "-s -w"},
	{"bridge", "cni", "github.com/containernetworking/plugins/plugins/main/bridge", "-s -w"},
	{"loopback", "cni", "github.com/containernetworking/plugins/plugins/main/loopback", "-s -w"},
	{"host-local", "cni", "github.com/containernetworking/plugins/plugins/ipam/host-local", "-s -w"},
}

// jobSetPart is the controller of JobSets, for the test that restarts one.
var jobSetPart = part{jobSetController, "jobset", jobSetModule, "-s -w"}

// withJobSets reports whether a JobSet is restarted by its project's own controller, which
// takes minutes to build and to run.
func withJobSets() bool { return os.Getenv("STAGER_TRIAL") == "full" }

// build returns the program; modules is the directory of that name.
func (p part) build(ctx context.Context, modules string, progress io.Writer) (string, error) {
	return servers.Build(ctx, filepath.Join(modules, p.module), p.pkg, progress,
		"-tags", "no_btrfs no_devmapper no_zfs", "-ldflags", p.flags)
}

// Kubectl returns the program that the cluster's tests use, built if it must be.
func Kubectl(ctx context.Context, modules string, progress io.Writer) (string, error) {
	return controlParts[slices.IndexFunc(controlParts, func(p part) bool { return p.name == "kubectl" })].build(ctx, modules, progress)
}

// kubernetesFlags tell the programs their version; without it they refuse each other.
const kubernetesFlags = "-s -w -X k8s.io/component-base/version.gitVersion=v" + version +
	" -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=36" +
	" -X k8s.io/component-base/version.gitCommit=module -X k8s.io/component-base/version.gitTreeState=clean"

// build makes a directory of programs, by their names: an API server's, with the stager
// that is tested, and those of a node where one is wanted.
func build(ctx context.Context, dir string, node bool, progress io.Writer) error {
	// Some are Debian's, unpacked without being installed: runc needs libseccomp, and
	// busybox, the shell of the trainer's image, is in C.
	parts, packages := controlParts, map[string]string{"busybox-static": "bin/busybox"}
	if node {
		parts = slices.Concat(parts, nodeParts)
		packages["runc"] = "usr/sbin/runc"
	}
	if node && withJobSets() {
		parts = append(parts, jobSetPart)
		if err := jobSetDefinition(ctx, dir); err != nil {
			return err
		}
	}
	for _, p := range parts {
		bin, err := p.build(ctx, "modules", progress)
		if err != nil {
			return err
		}
		if err := os.Symlink(bin, filepath.Join(dir, p.name)); err != nil {
			return err
		}
	}
	for pkg, file := range packages {
		unpacked, err := servers.Unpack(ctx, progress, pkg)
		if err != nil {
			return err
		}
		bin, err := within(unpacked, file)
		if err != nil {
			return err
		}
		if err := os.Symlink(bin, filepath.Join(dir, filepath.Base(file))); err != nil {
			return err
		}
	}
	if err := os.Symlink("stager", filepath.Join(dir, "kubectl-stager")); err != nil { // kubectl's plugin
		return err
	}
	stager := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", filepath.Join(dir, "stager"), "./cmd/stager")
	stager.Dir, stager.Stderr = "../..", os.Stderr
	stager.Env = append(os.Environ(), "CGO_ENABLED=0")
	return stager.Run()
}

// within finds a file of an unpacked package.
func within(dir, file string) (string, error) {
	for _, where := range []string{file, "usr/" + file} { // /bin may be /usr/bin
		bin := filepath.Join(dir, where)
		if _, err := os.Stat(bin); err == nil {
			return bin, nil
		}
	}
	return "", fmt.Errorf("there is no %s in %s", file, dir)
}
