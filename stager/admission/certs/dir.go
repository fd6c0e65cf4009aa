package certs

import (
	"context"
	"crypto/tls"
	"fmt"
	"path/filepath"
)

// Dir serves tls.crt and tls.key from a directory, such as a mounted Secret.
type Dir struct {
	Dir string

	current
}

// Sync reads both files. On an error the previous certificate stays in use.
func (f *Dir) Sync(context.Context) error {
	cert, err := tls.LoadX509KeyPair(filepath.Join(f.Dir, keyCert), filepath.Join(f.Dir, keyKey))
	if err != nil {
		return fmt.Errorf("%s has no matching %s and %s: %w", f.Dir, keyCert, keyKey, err)
	}
	f.certificate.Store(&cert)
	return nil
}
