package main

import (
	"bytes"
	"regexp"
	"testing"
	"time"

	"github.com/vbauerster/mpb/v8"
)

// Ctrl-C filled the bar to 100 %, as if everything had been fetched.
func TestBarStaysWhereTheWorkWasCutShort(t *testing.T) {
	for _, tt := range []struct {
		bytes int64
		want  string // the last percentage shown
	}{{300, "30 %"}, {1000, "100 %"}, {0, "0 %"}} {
		var printed bytes.Buffer
		d := &display{to: new(console), done: make(chan struct{}), clock: time.Now}
		d.bars = mpb.New(mpb.WithOutput(&printed), mpb.WithWidth(40), mpb.WithAutoRefresh())
		d.bar = d.addBar()
		d.update(moving{Phase: "fetching", Bytes: tt.bytes, BytesTotal: 1000})
		d.close() // as commands do on exit and on interrupt
		all := regexp.MustCompile(`\d+ ?%`).FindAllString(printed.String(), -1)
		if len(all) == 0 || all[len(all)-1] != tt.want {
			t.Errorf("after %d of 1000 bytes: the bar ends with %q, want %q", tt.bytes, all, tt.want)
		}
	}
}
