package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/stager-dev/stager/e2e/image"
)

// Images that a node has; there is no registry to pull others from.
const (
	stagerImage  = "localhost/stager:dev"
	trainerImage = "localhost/trainer:dev"   // images/trainer: a shell and a trainer
	secondImage  = "localhost/stager:second" // that of a second revision
	sandboxImage = "localhost/sandbox:dev"   // what holds a pod's namespaces
)

// startNode starts the controllers, the scheduler and one node, and returns when it
// takes pods.
func (c *cluster) startNode(ctx context.Context) error {
	text := strings.NewReplacer("$DIR", c.dir, "$BIN", c.bin, "$SANDBOX", sandboxImage, "$IP", nodeIP)
	for file, content := range map[string]string{
		"containerd.toml":     containerdConfig,
		"kubelet.yaml":        kubeletConfig,
		"cni/10-net.conflist": networkConfig,
		"resolv.conf":         "nameserver " + nodeIP + "\n",
	} {
		if err := errors.Join(
			os.MkdirAll(filepath.Dir(c.file(file)), 0o755),
			os.WriteFile(c.file(file), []byte(text.Replace(content)), 0o600)); err != nil {
			return err
		}
	}
	err := errors.Join(
		c.start("kube-controller-manager", "--kubeconfig="+c.file("controllers.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--authentication-kubeconfig="+c.file("controllers.kubeconfig"), "--authorization-kubeconfig="+c.file("controllers.kubeconfig"),
			"--use-service-account-credentials", "--service-account-private-key-file="+c.file("accounts.key"),
			"--root-ca-file="+c.file("ca.crt"), "--cert-dir="+c.file("certs-controllers")),
		c.start("kube-scheduler", "--kubeconfig="+c.file("scheduler.kubeconfig"), "--leader-elect=false", "--bind-address=127.0.0.1",
			"--authentication-kubeconfig="+c.file("scheduler.kubeconfig"), "--authorization-kubeconfig="+c.file("scheduler.kubeconfig"),
			"--cert-dir="+c.file("certs-scheduler")),
		c.start("containerd", "-c", c.file("containerd.toml")))
	if err != nil {
		return err
	}
	if err := c.until(ctx, "containerd answers", func() bool {
		_, err := c.ctr(ctx, "version")
		return err == nil
	}); err != nil {
		return err
	}
	if err := c.loadImages(ctx); err != nil {
		return err
	}
	err = c.start("kubelet", "--config="+c.file("kubelet.yaml"), "--kubeconfig="+c.file("kubelet.kubeconfig"),
		"--hostname-override=node1", "--node-ip="+nodeIP, "--root-dir="+c.file("kubelet"), "--cert-dir="+c.file("certs-kubelet"))
	if err != nil {
		return err
	}
	return c.until(ctx, "the node is ready", func() bool {
		out, err := c.kubectl(ctx, "", "get", "node", "node1", "--no-headers")
		return err == nil && strings.Contains(out, " Ready")
	})
}

// loadImages makes the images and hands them to containerd.
func (c *cluster) loadImages(ctx context.Context) error {
	var stager, shell, script []byte
	for file, text := range map[string]*[]byte{
		filepath.Join(c.bin, "stager"):  &stager,
		filepath.Join(c.bin, "busybox"): &shell,
		"../../images/trainer/trainer":  &script,
	} {
		var err error
		if *text, err = os.ReadFile(file); err != nil {
			return err
		}
	}
	trainer := image.Trainer(trainerImage, runtime.GOARCH, shell, stager, script)
	for _, img := range []image.Image{
		image.Release(stagerImage, runtime.GOARCH, stager),
		image.Release(secondImage, runtime.GOARCH, stager),
		trainer,
		{Name: sandboxImage, Arch: runtime.GOARCH, Files: trainer.Files, Entrypoint: []string{"/bin/sh", "-c", "trap exit TERM; while :; do sleep 3600 & wait; done"}},
	} {
		file := c.file("image.tar")
		w, err := os.Create(file)
		if err != nil {
			return err
		}
		_, err = img.Write(w)
		if err := errors.Join(err, w.Close()); err != nil {
			return err
		}
		if _, err := c.ctr(ctx, "-n", "k8s.io", "images", "import", file); err != nil {
			return err
		}
	}
	return nil
}

// ctr tells containerd something, or asks it.
func (c *cluster) ctr(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "ctr"), append([]string{"-a", c.file("containerd.sock")}, args...)...)
	return output(cmd)
}

// Where a machine has no CAP_SYS_RESOURCE, processes cannot be made less likely to be
// killed than their parent: restrict_oom_score_adj here, oomScoreAdj below.
const containerdConfig = `version = 3
root = "$DIR/containerd"
state = "/run/containerd"
[grpc]
  address = "$DIR/containerd.sock"
[plugins.'io.containerd.internal.v1.opt']
  path = "/opt/containerd"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "$SANDBOX"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["$BIN"]
    conf_dir = "$DIR/cni"
  [plugins.'io.containerd.cri.v1.runtime'.containerd]
    default_runtime_name = "runc"
    [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      runtime_path = "$BIN/containerd-shim-runc-v2"
      [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc.options]
        BinaryName = "$BIN/runc"
        SystemdCgroup = false
`

const networkConfig = `{"cniVersion": "1.0.0", "name": "pods", "plugins": [
  {"type": "bridge", "bridge": "pods0", "isGateway": true, "ipMasq": false,
   "ipam": {"type": "host-local", "dataDir": "$DIR/addresses", "ranges": [[{"subnet": "10.244.77.0/24"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "loopback"}
]}
`

// Old and new control groups may be mounted side by side, so the kubelet takes the old
// ones and enforces nothing on the node as a whole.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
enforceNodeAllocatable: []
failSwapOn: false
maxOpenFiles: 1000
oomScoreAdj: 0
makeIPTablesUtilChains: false
address: $IP
healthzPort: 0
readOnlyPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}, x509: {clientCAFile: $DIR/ca.crt}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix://$DIR/containerd.sock
resolvConf: $DIR/resolv.conf
clusterDNS: [$IP]
clusterDomain: cluster.local
evictionHard: {nodefs.available: "1%", imagefs.available: "1%", memory.available: 50Mi}
evictionPressureTransitionPeriod: 10s
imageMinimumGCAge: 720h
volumeStatsAggPeriod: 10s
volumePluginDir: $DIR/plugins
podLogsDir: $DIR/logs
tlsCertFile: $DIR/kubelet.crt
tlsPrivateKeyFile: $DIR/kubelet.key
`
