package api

import (
	"strings"
	"testing"

	"github.com/stager-dev/stager/window"
)

func TestCursorPlanAndReport(t *testing.T) {
	h := newHouse(t, 3, 10, func(c *window.Config) { c.Part, c.Epochs = "0/1", 2 })
	c := h.dial()
	c.want(404, "GET", "/v1/inputs/train/report")
	l := c.lease("reader=r1", bound)
	c.want(204, "POST", "/v1/leases/"+l.Lease+"/ack")
	_, cursor := c.want(200, "GET", "/v1/inputs/train/cursor")
	if want := `{"manifest":"p","part":"0/1","epoch":0,"settled":{"0":[[0,0]]},"inOrder":true}` + "\n"; cursor != want {
		t.Errorf("got the cursor %s, want %s", cursor, want)
	}
	_, plan := c.want(200, "GET", "/v1/inputs/train/plan?epoch=1")
	if want := `{"epoch":1,"pos":0,"name":"s00.tar","bytes":10}` + "\n"; strings.Count(plan, "\n") != 3 || !strings.HasPrefix(plan, want) {
		t.Errorf("got the plan %s, want 3 lines, of which the first is %s", plan, want)
	}
	_, report := c.want(200, "GET", "/v1/inputs/train/report?epoch=0")
	if want := `{"epoch":0,"pos":0,"name":"s00.tar","bytes":10,"part":"0/1","reader":"r1","attempt":1,"leased":"`; strings.Count(report, "\n") != 1 || !strings.HasPrefix(report, want) {
		t.Errorf("got the report %s, want one line that begins with %s", report, want)
	}
	for path, code := range map[string]int{"plan?epoch=2": 400, "plan?epoch=x": 400, "report?epoch=1": 404, "cursor?": 200} {
		c.want(code, "GET", "/v1/inputs/train/"+path)
	}
}
