package certs

import (
	"bytes"
	"maps"
	"time"
)

// Keys of the Secret. The first three are those of every TLS Secret.
const (
	keyBundle   = "ca.crt" // every CA that may have signed the served certificate
	keyCert     = "tls.crt"
	keyKey      = "tls.key"
	keyNextCert = "next.crt"
	keyNextKey  = "next.key"
)

// state is the data of the Secret.
type state map[string][]byte

func (s state) serving() pair { return pair{s[keyCert], s[keyKey]} }
func (s state) next() pair    { return pair{s[keyNextCert], s[keyNextKey]} }

// prepare returns a state with a certificate to serve now and, when a renewal is due, the next one.
// The bundle contains the CAs of both.
func (s state) prepare(names []string, now time.Time) (state, error) {
	out := maps.Clone(s)
	if out == nil {
		out = make(state)
	}
	out[keyBundle] = alive(out[keyBundle], now)
	c, good := out.serving().open(out[keyBundle], names, now)
	_, waiting := out.next().open(out[keyBundle], names, now)
	if !waiting {
		delete(out, keyNextCert)
		delete(out, keyNextKey)
	}
	if good && (waiting || now.Before(c.Leaf.NotBefore.Add(backdate+renewAge))) {
		return out, nil
	}
	p, authority, err := issue(names, now)
	if err != nil {
		return nil, err
	}
	out[keyBundle] = append(out[keyBundle], authority...)
	if good {
		out[keyNextCert], out[keyNextKey] = p.cert, p.key
	} else {
		out[keyCert], out[keyKey] = p.cert, p.key
	}
	return out, nil
}

// promote returns the state with the next certificate in use, once it has waited long enough.
func (s state) promote(names []string, now time.Time) state {
	c, waiting := s.next().open(s[keyBundle], names, now)
	if !waiting || now.Before(c.Leaf.NotBefore.Add(backdate+settleTime)) {
		return s
	}
	out := maps.Clone(s)
	out[keyCert], out[keyKey] = s[keyNextCert], s[keyNextKey]
	delete(out, keyNextCert)
	delete(out, keyNextKey)
	return out
}

func (s state) equal(other state) bool { return maps.EqualFunc(s, other, bytes.Equal) }
