package explain

import (
	"strings"
	"testing"
)

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"10Gbit/s": 1.25e9, "800Mbit": 1e8, "8 kbit/s": 1000, "8bit/s": 1, "1.2GB/s": 1.2e9, "200Mi": 200 << 20, "200MiB/s": 200 << 20, "0": 0, "5": 5, "1kB/s": 1000,
	} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "fast", "-1Gbit/s", "1e400Gbit/s", "10Gb/s", "10 furlongs", "NaNbit", "/s", "Gbit/s"} {
		if got, err := ParseRate(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		} else if !strings.Contains(err.Error(), "write 10Gbit/s") {
			t.Errorf("%q: %v; want what to write", text, err)
		}
	}
}

func TestParseSize(t *testing.T) {
	for text, want := range map[string]Size{
		"200GB": {200e9, 0}, "60Gi": {60 << 30, 0}, "60GiB": {60 << 30, 0}, "1.8TB": {1.8e12, 0}, "17": {17, 0}, "17B": {17, 0}, "4KiB": {4096, 0}, "4kB": {4000, 0}, "2TB/2000": {2e12, 2000}, "0": {0, 0},
	} {
		if got, err := ParseSize(text); err != nil || got != want {
			t.Errorf("%q is %v, %v; want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "B", "big", "-1", "1.5", "9e30", "2TB/", "2TB/0", "2TB/many", "2TB/-3"} {
		if got, err := ParseSize(text); err == nil {
			t.Errorf("%q is %v, want an error", text, got)
		}
	}
}

func TestParsePricesRefusesWhatIsNoPrice(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"nothing", "", "the file is empty"},
		{"no currency", `stores: [{match: "s3://"}]`, "currency is missing"},
		{"no stores", "currency: USD", "stores is missing"},
		{"no match", "currency: USD\nstores: [{get: 1}]", "stores[0].match is missing"},
		{"a negative price", "currency: USD\nstores: [{match: a, egress: -1}]", "stores[0].egress: a price must be a number of 0 or more (got -1)"},
		{"not a number", "currency: USD\nstores: [{match: a, egress: .nan}]", "stores[0].egress"},
		{"words", "currency: USD\nstores:\n- match: a\n  get: cheap", "line 4"},
		{"an unknown field", "currency: USD\nstores:\n- match: a\n  gets: 1", "line 4: field gets not found in stores; known are match"},
		{"no YAML", "currency: [", "line 1"},
	} {
		if _, err := ParsePrices([]byte(tt.text)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

func TestPriceOfLongestMatchApplies(t *testing.T) {
	p := &Prices{Stores: []Price{{Match: "s3://", Egress: 1}, {Match: "s3://near/", Egress: 2}, {Match: "oss://", Egress: 3}}}
	for url, want := range map[string]float64{"s3://far/x/": 1, "s3://near/x/": 2, "oss://a/": 3} {
		if got := p.of(url); got == nil || got.Egress != want {
			t.Errorf("%s: %+v, want a price of %v", url, got, want)
		}
	}
	if got := p.of("nfs://a/"); got != nil {
		t.Errorf("nfs: %+v, want none", got)
	}
}
