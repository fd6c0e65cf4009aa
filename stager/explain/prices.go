package explain

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Prices are the prices of stores. Stager has none built in: they come from a file.
type Prices struct {
	Currency string  `yaml:"currency"`
	Stores   []Price `yaml:"stores"`
}

// Price applies to the stores whose URLs start with Match. The longest match wins.
type Price struct {
	Match   string  `yaml:"match"`
	List    float64 `yaml:"list"`    // per 1,000 list requests
	Get     float64 `yaml:"get"`     // per 1,000 read requests
	Put     float64 `yaml:"put"`     // per 1,000 write requests
	Egress  float64 `yaml:"egress"`  // per 10^9 bytes read from the store
	Ingress float64 `yaml:"ingress"` // per 10^9 bytes written to the store
}

// ParsePrices parses a price file. Unknown fields are errors, with their line.
func ParsePrices(text []byte) (*Prices, error) {
	dec := yaml.NewDecoder(bytes.NewReader(text))
	dec.KnownFields(true)
	p := new(Prices)
	if err := dec.Decode(p); errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty; write currency: USD and stores: [{match: \"s3://\", get: 0.0004, egress: 0.09}]")
	} else if err != nil {
		return nil, readable(err)
	}
	if p.Currency == "" {
		return nil, errors.New("currency is missing; write one such as currency: USD")
	}
	if len(p.Stores) == 0 {
		return nil, errors.New("stores is missing or empty; write stores: [{match: \"s3://\", get: 0.0004, egress: 0.09}]")
	}
	for i, s := range p.Stores {
		if s.Match == "" {
			return nil, fmt.Errorf("stores[%d].match is missing; write how the URLs of the store begin, such as s3://bucket/", i)
		}
		for name, price := range map[string]float64{"list": s.List, "get": s.Get, "put": s.Put, "egress": s.Egress, "ingress": s.Ingress} {
			if price < 0 || math.IsNaN(price) || math.IsInf(price, 0) {
				return nil, fmt.Errorf("stores[%d].%s: a price must be a number of 0 or more (got %v)", i, name, price)
			}
		}
	}
	return p, nil
}

// readable returns the parser's error in words for users.
func readable(err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var bad *yaml.TypeError
	if errors.As(err, &bad) {
		text = strings.Join(bad.Errors, "; ")
	}
	text = strings.NewReplacer(" in type explain.Prices", " in the file; known are currency and stores",
		" in type explain.Price", " in stores; known are match, list, get, put, egress and ingress").Replace(text)
	return errors.New(text)
}

// of returns the price of a URL's store, or nil.
func (p *Prices) of(url string) (best *Price) {
	if p == nil {
		return nil
	}
	for i, s := range p.Stores {
		if strings.HasPrefix(url, s.Match) && (best == nil || len(s.Match) > len(best.Match)) {
			best = &p.Stores[i]
		}
	}
	return best
}
