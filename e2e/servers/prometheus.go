package servers

import (
	"errors"
	"os/exec"
	"path/filepath"
)

// prometheusPackages are Debian's, unpacked and not installed: they would start a service.
var prometheusPackages = []string{"prometheus"}

// Promtool returns a command of promtool, which checks and tests the rules of Prometheus.
func Promtool(args ...string) (*exec.Cmd, error) {
	dir, err := unpackedAt(prometheusPackages)
	if err != nil {
		return nil, err
	}
	if !isUnpacked(dir) {
		return nil, notHere("prometheus", errors.New("there is no promtool on this machine"))
	}
	return exec.Command(filepath.Join(dir, "usr/bin/promtool"), args...), nil
}
