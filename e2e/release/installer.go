package release

import (
	_ "embed"
	"strings"
)

// installScript is the installer before the version and the sums are known.
//
//go:embed install.sh
var installScript string

// installer writes install.sh, which holds the sums of the archives: who trusts the script need not
// trust the place that the archives come from.
func (r *release) installer() error {
	sums, err := r.sumsOf(func(name string) bool { return strings.HasSuffix(name, ".tar.gz") })
	if err != nil {
		return err
	}
	script := strings.NewReplacer("@VERSION@", r.Version, "@SUMS@", strings.TrimSpace(sums)).Replace(installScript)
	return r.file("install.sh", []byte(script), 0o755)
}
