package release

import (
	"fmt"
	"os"
	"path/filepath"
)

// monitoring writes the alerts, the dashboard and the PodMonitors: who installs from a release has
// no checkout.
func (r *release) monitoring() error {
	for _, f := range []struct{ name, from string }{
		{"prometheus-rules.yaml", "prometheus/rules.yaml"},
		{"podmonitor.yaml", "prometheus/podmonitor.yaml"},
		{"grafana.json", "grafana/stager.json"},
	} {
		body, err := os.ReadFile(filepath.Join(r.Source, "deploy", filepath.FromSlash(f.from)))
		if err != nil {
			return err
		}
		if err := r.file(fmt.Sprintf("stager_%s_%s", r.Version, f.name), body, 0o644); err != nil {
			return err
		}
	}
	return nil
}
