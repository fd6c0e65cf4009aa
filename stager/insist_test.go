package stager

import (
	"bytes"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stager-dev/stager/stager/api"
)

// firstLine cancels with the first line of a log.
type firstLine struct {
	bytes.Buffer
	cancel context.CancelFunc
}

func (f *firstLine) Write(p []byte) (int, error) {
	f.cancel()
	return f.Buffer.Write(p)
}

func TestSamplerReportsThatItsStagerIsAway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	said := &firstLine{cancel: cancel}
	from := &inputOf{ctx: ctx, client: api.Client{Socket: filepath.Join(t.TempDir(), "none")}, log: slog.New(slog.NewTextHandler(said, nil))}
	if _, _, err := from.insist(ctx, "GET", "/v1/status", nil, nil); err == nil {
		t.Error("got a response of a stager that is away")
	}
	if want := `level=WARN msg="waiting for the sampled stager"`; strings.Count(said.String(), want) != 1 {
		t.Errorf("got the log %q, want %q once", said.String(), want)
	}
}
