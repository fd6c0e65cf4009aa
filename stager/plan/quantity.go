package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Bytes is a number of bytes. In files it is an integer or a Kubernetes quantity such as 60Gi, to
// which a B may be added: 200MB and 200MiB are 200M and 200Mi. The empty text is 0.
type Bytes int64

// String returns the quantity: "60Gi".
func (b Bytes) String() string {
	if b >= 1024 { // nearly all sizes
		n, unit := int64(b), 0
		for n%1024 == 0 && unit < len(binaryUnits)-1 {
			n, unit = n/1024, unit+1
		}
		return strconv.FormatInt(n, 10) + binaryUnits[unit]
	}
	return resource.NewQuantity(int64(b), resource.BinarySI).String()
}

var binaryUnits = []string{"", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"}

// MarshalJSON writes String.
func (b Bytes) MarshalJSON() ([]byte, error) { return json.Marshal(b.String()) }

// bytesForm restricts quantities: 1e9999999 is valid, too, and takes seconds to parse.
var bytesForm = regexp.MustCompile(`^[+-]?[0-9.]{1,32}([eE][+-]?[0-9]{1,2}|[a-zA-Z]{0,2})$`)

// bytesUnit matches a unit with a B, which Kubernetes does not know.
var bytesUnit = regexp.MustCompile(`([0-9.](?:[kKMGTPE]i?)?)B$`)

// ParseBytes parses a number of bytes as written in files.
func ParseBytes(text string) (b Bytes, err error) {
	err = b.set(text)
	return b, err
}

func (b *Bytes) set(text string) error {
	if text == "" {
		*b = 0
		return nil
	}
	unreadable := fmt.Errorf("%q is not a number of bytes: write 500M or 500MB for 500,000,000, 500Mi or 500MiB for 524,288,000, or a whole number", text)
	plain := bytesUnit.ReplaceAllString(text, "$1")
	if strings.HasSuffix(plain, "K") { // Kubernetes writes k
		plain = strings.TrimSuffix(plain, "K") + "k"
	}
	if !bytesForm.MatchString(plain) {
		return unreadable
	}
	q, err := resource.ParseQuantity(plain)
	if err != nil {
		return unreadable
	}
	whole := q.DeepCopy()
	whole.RoundUp(0)
	switch {
	case q.Sign() < 0:
		return fmt.Errorf("%s is negative: a number of bytes is 0 or more", text)
	case whole.Cmp(q) != 0:
		return fmt.Errorf("%s is not a whole number of bytes (m means thousandths: write M or Mi for a million)", text)
	case q.CmpInt64(math.MaxInt64) >= 0:
		return fmt.Errorf("%s is too large: the maximum is below 8Ei", text)
	}
	*b = Bytes(q.Value())
	return nil
}

// Duration is a time span. In files it is written as in Go: 90s, 10m, 1h30m.
type Duration time.Duration

// String formats as time.Duration does.
func (d Duration) String() string { return time.Duration(d).String() }

// MarshalJSON writes String.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

func (d *Duration) set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil {
		return fmt.Errorf("%q is not a time span: write 90s, 10m or 24h", text)
	}
	if v < 0 {
		return errors.New("a time span must not be negative")
	}
	*d = Duration(v)
	return nil
}
