package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// cluster is a Kubernetes that runs in the namespaces of this process and ends with
// them.
type cluster struct {
	dir   string // all its files
	bin   string // its programs
	ca    *authority
	admin string // kubeconfig of one who may do everything

	namespace string // of what kubectl is asked about; "": default
}

// in is the cluster as one sees it who works in a namespace.
func (c *cluster) in(namespace string) *cluster {
	there := *c
	there.namespace = namespace
	return &there
}

// startControl starts etcd and the API server and returns when it answers.
func startControl(ctx context.Context, dir, bin string) (*cluster, error) {
	ca, err := newAuthority(dir)
	if err != nil {
		return nil, err
	}
	c := &cluster{dir: dir, bin: bin, ca: ca}
	for _, who := range []struct{ name, user, group string }{
		{"apiserver", "kube-apiserver", ""},
		{"accounts", "service-accounts", ""},
		{"admin", "admin", "system:masters"},
		{"controllers", "system:kube-controller-manager", ""},
		{"scheduler", "system:kube-scheduler", ""},
		{"kubelet", "system:node:node1", "system:nodes"},
	} {
		if err := ca.issue(who.name, who.user, who.group); err != nil {
			return nil, err
		}
		if c.admin, err = ca.kubeconfig(who.name); err != nil {
			return nil, err
		}
	}
	c.admin = c.file("admin.kubeconfig")
	err = errors.Join(
		c.start("etcd", "--data-dir", c.file("etcd"), "--unsafe-no-fsync"),
		c.start("kube-apiserver", "--etcd-servers=http://127.0.0.1:2379", "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1",
			"--tls-cert-file="+c.file("apiserver.crt"), "--tls-private-key-file="+c.file("apiserver.key"), "--client-ca-file="+c.file("ca.crt"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.file("accounts.crt"),
			"--service-account-signing-key-file="+c.file("accounts.key"),
			"--kubelet-client-certificate="+c.file("admin.crt"), "--kubelet-client-key="+c.file("admin.key"),
			"--kubelet-preferred-address-types=InternalIP", "--kubelet-certificate-authority="+c.file("ca.crt"),
			"--authorization-mode=Node,RBAC", "--allow-privileged", "--service-cluster-ip-range=10.96.0.0/16",
			"--endpoint-reconciler-type=none", "--cert-dir="+c.file("certs"),
			// No pod talks to the API server, and tests do not wait for accounts.
			"--disable-admission-plugins=ServiceAccount"))
	if err != nil {
		return nil, err
	}
	return c, c.until(ctx, "the API server answers", func() bool {
		_, err := c.kubectl(ctx, "", "get", "--raw", "/readyz")
		return err == nil
	})
}

func (c *cluster) file(name string) string { return filepath.Join(c.dir, name) }

// start starts a program of the cluster, with its log in NAME.log. It ends with the
// namespaces.
func (c *cluster) start(name string, args ...string) error {
	log, err := os.Create(c.file(name + ".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, log, log
	cmd.Env = append(os.Environ(), "PATH="+c.bin+string(os.PathListSeparator)+os.Getenv("PATH"))
	return cmd.Start()
}

// kubectl runs a command of the administrator's with text as its standard input.
func (c *cluster) kubectl(ctx context.Context, text string, args ...string) (string, error) {
	return output(c.admins(ctx, text, args...))
}

// admins is such a command.
func (c *cluster) admins(ctx context.Context, text string, args ...string) *exec.Cmd {
	general := []string{"--kubeconfig", c.admin, "--request-timeout=20s", "--cache-dir", c.file("discovery")}
	if c.namespace != "" {
		general = append(general, "--namespace", c.namespace)
	}
	cmd := exec.CommandContext(ctx, filepath.Join(c.bin, "kubectl"), append(general, args...)...)
	cmd.Stdin = strings.NewReader(text)
	return cmd
}

// output is what a command prints; what it complains of is part of the error.
func output(cmd *exec.Cmd) (string, error) {
	var complaints strings.Builder
	cmd.Stderr = &complaints
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, complaints.String())
	}
	return string(out), nil
}

// until waits for something to become true.
func (c *cluster) until(ctx context.Context, what string, is func() bool) error {
	tick := time.NewTicker(500 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
