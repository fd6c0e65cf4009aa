package nfs

import (
	"log/slog"
	"os"
	"testing"

	"github.com/stager-dev/stager/backends"
	"github.com/stager-dev/stager/backends/backendtest"
)

func TestQuick(t *testing.T) {
	backendtest.Run(t, func(t *testing.T) *backends.Store {
		s, err := backends.NewRegistry(Scheme()).Open(t.Context(), os.Getenv("Q"), backends.Options{Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return s
	}, backendtest.Options{})
}
