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

// Prices are what stores charge. Stager knows none: they come from a file.
type Prices struct {
	Currency string  `yaml:"currency"`
	Stores   []Price `yaml:"stores"`
}

// Price is that of the stores whose URLs begin with Match; of several that do, the longest counts.
type Price struct {
	Match   string  `yaml:"match"`
	List    float64 `yaml:"list"`    // of 1,000 requests that list
	Get     float64 `yaml:"get"`     // of 1,000 requests that read
	Put     float64 `yaml:"put"`     // of 1,000 requests that write
	Egress  float64 `yaml:"egress"`  // of 10^9 bytes that leave the store
	Ingress float64 `yaml:"ingress"` // of 10^9 bytes that come to it
}

// ParsePrices reads a file of prices. Unknown fields are errors, with their line.
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

// readable is what the parser says of a file of prices, for people.
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

// of is the price of a URL's store; nil: there is none.
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
