package format

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// decodedEnd is dataEnd by encoding/json.
func decodedEnd(header []byte) (end int64, err error) {
	if !json.Valid(header) {
		return 0, errNoObject
	}
	ok := members(header, func(name string, tensor json.RawMessage) {
		if name == "__metadata__" {
			return
		}
		object := members(tensor, func(name string, value json.RawMessage) {
			var offsets []*int64
			switch {
			case name != "data_offsets":
			case json.Unmarshal(value, &offsets) != nil || len(offsets) != 2 || offsets[0] == nil || offsets[1] == nil,
				*offsets[0] < 0, *offsets[1] < *offsets[0]:
				err = errBadOffsets
			default:
				end = max(end, *offsets[1])
			}
		})
		if !object {
			err = errBadOffsets
		}
	})
	if !ok {
		err = errNoObject
	}
	if err != nil {
		end = 0
	}
	return end, err
}

// members calls member for each member of an object, also for those with equal names. It reports
// whether text is an object.
func members(text []byte, member func(name string, value json.RawMessage)) bool {
	dec := json.NewDecoder(bytes.NewReader(text))
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return false
	}
	for dec.More() {
		name, err := dec.Token()
		var value json.RawMessage
		if err != nil || dec.Decode(&value) != nil {
			return false
		}
		member(name.(string), value)
	}
	return true
}

func compareEnds(t *testing.T, header []byte) {
	t.Helper()
	got, err := dataEnd(header)
	want, werr := decodedEnd(header)
	if bytes.Count(header, []byte("["))+bytes.Count(header, []byte("{")) >= mostNested && errors.Is(err, errNoObject) {
		return // the scanner accepts fewer nested values
	}
	if got != want || !errors.Is(err, werr) {
		t.Errorf("the data of %q ends at %d, %v, want %d, %v", header, got, err, want, werr)
	}
}

var headers = []string{
	`{}`, ` { } `, ``, `null`, `[]`, `{"a"}`, `{"a":}`, `{"a":{}}`, `{"a":{},}`, `{"a":null}`, `{"a":1}`, `{"a":{}}x`, `{"a":{}}{}`, "{}\x00",
	`{"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"F32","shape":[],"data_offsets":[24,28]}}`,
	`{"__metadata__":{"format":"pt","data_offsets":[1,-1]},"a":{"data_offsets":[0,24]}}   `,
	`{"\u005f_metadata\u005F_":{"data_offsets":3},"a":{"dat\u0061_offsets":[0,24]}}`,
	`{"__metadata__":7,"\"\\\/\b\f\n\r\t\ud800é` + "\xff" + `":{"data_offsets":[5,7]}}`,
	`{"a":{"data_offsets":[7,5]}}`, `{"a":{"data_offsets":[-1,5]}}`, `{"a":{"data_offsets":[-0,5]}}`, `{"a":{"data_offsets":[- 0,5]}}`, `{"a":{"data_offsets":[00,5]}}`,
	`{"a":{"data_offsets":[0.0,5]}}`, `{"a":{"data_offsets":[0,5e0]}}`, `{"a":{"data_offsets":[0]}}`, `{"a":{"data_offsets":[0,1,2]}}`, `{"a":{"data_offsets":[]}}`,
	`{"a":{"data_offsets":null}}`, `{"a":{"data_offsets":[null,null]}}`, `{"a":{"data_offsets":[0,5],"data_offsets":[0,3]},"a":{"data_offsets":[0,4]}}`,
	`{"a":{"data_offsets":[0,9223372036854775807]}}`, `{"a":{"data_offsets":[0,9223372036854775808]}}`, `{"a":{"data_offsets":[0,99999999999999999999]}}`,
	`{"a":{"DATA_OFFSETS":[0,5]}}`, `{"a":{"data_offsets":[0,5}}`, `{"a":{"data_offsets":[0 5]}}`, `{"a":{"data_offsets":[,0,5]}}`, `{"a":{"data_offsets" : [ 0 , 5 ] } }`,
	`{"a":{"x":[true,false,null,-1.5e+7,0,"",{"y":[[]]}],"data_offsets":[1,2]}}`, `{"a":{"x":tru}}`, `{"a":{"x":01}}`, `{"a":{"x":1.}}`, `{"a":{"x":1e}}`, `{"a":{"x":-}}`, `{"a":{"x":+1}}`,
	`{"a":{"x":"\x"}}`, `{"a":{"x":"\u12g4"}}`, "{\"a\":{\"x\":\"\\u00\x160\"}}", `{"a":{"x":"\u12`, `{"a":{"x":"\`, "{\"a\":{\"x\":\"\n\"}}", "{\"a\":{\"x\":\"\\\\\n\"}}", "{\"a\":{\"x\":\"\\\x00\"}}", `{"a":{"x":"`,
}

// The scanner and encoding/json find the same end of the data, or the same fault, in headers,
// their beginnings, and headers with a byte changed.
func TestDataEndEqualsThatOfEncodingJSON(t *testing.T) {
	all := headers
	for name, p := range samples(t) {
		if strings.HasSuffix(name, ".safetensors") {
			all = append(all, string(bytes.TrimRight(p[8:], "\x00")))
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	const bytesOf = `{}[]":,\-0129.eEutn _ad` + "\x00\n\xff"
	for _, text := range all {
		compareEnds(t, []byte(text))
		for n := range text {
			compareEnds(t, []byte(text[:n]))
			for range 20 {
				changed := []byte(text)
				changed[n] = bytesOf[random.IntN(len(bytesOf))]
				compareEnds(t, changed)
			}
		}
	}
	for _, nested := range []string{`{"a":`, `{"a":{"x":[`, `[`} {
		deep := []byte(strings.Repeat(nested, 100_000))
		if _, err := dataEnd(deep); !errors.Is(err, errNoObject) {
			t.Errorf("100,000 times %q: got %v, want %v", nested, err, errNoObject)
		}
	}
}

func FuzzDataEnd(f *testing.F) {
	for _, text := range headers {
		f.Add([]byte(text))
	}
	f.Fuzz(compareEnds)
}

func BenchmarkDataEnd(b *testing.B) {
	const tensors = 1000
	var header bytes.Buffer
	for i := range tensors {
		fmt.Fprintf(&header, `%c"model.layers.%d.mlp.down_proj.weight":{"dtype":"BF16","shape":[128,256],"data_offsets":[%d,%d]}`, ",{"[(tensors-i)/tensors], i, i<<16, (i+1)<<16)
	}
	header.WriteByte('}')
	for name, end := range map[string]func([]byte) (int64, error){"scanner": dataEnd, "encoding-json": decodedEnd} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(header.Len()))
			b.ReportAllocs()
			for b.Loop() {
				if got, err := end(header.Bytes()); got != tensors<<16 || err != nil {
					b.Fatalf("got %d, %v", got, err)
				}
			}
		})
	}
}
