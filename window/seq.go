package window

import (
	"cmp"
	"fmt"
	"strings"
)

// seq is a position in the order of delivery.
type seq struct{ epoch, pos int }

func (a seq) compare(b seq) int {
	return cmp.Or(cmp.Compare(a.epoch, b.epoch), cmp.Compare(a.pos, b.pos))
}

func (a seq) before(b seq) bool { return a.compare(b) < 0 }

// fileName returns the file name of an item at this position. Names sort in the order of delivery.
func (a seq) fileName(name string) string { return fmt.Sprintf("e%04d-%08d-%s", a.epoch, a.pos, name) }

// endName returns the name of an epoch's END marker.
func endName(epoch int) string { return fmt.Sprintf("e%04d.END", epoch) }

// parseName is the inverse of fileName.
func parseName(file string) (a seq, name string, ok bool) {
	var rest string
	if a.epoch, rest, ok = number(file, 'e'); !ok {
		return seq{}, "", false
	}
	if a.pos, rest, ok = number(rest, '-'); !ok {
		return seq{}, "", false
	}
	name, ok = strings.CutPrefix(rest, "-")
	return a, name, ok && a.fileName(name) == file
}

// parseEnd is the inverse of endName.
func parseEnd(file string) (epoch int, ok bool) {
	epoch, rest, ok := number(file, 'e')
	return epoch, ok && rest == ".END" && endName(epoch) == file
}

// number parses the digits that follow a letter.
func number(s string, letter byte) (n int, rest string, ok bool) {
	if s == "" || s[0] != letter {
		return 0, "", false
	}
	i := 1
	for ; i < len(s) && i < 19 && s[i] >= '0' && s[i] <= '9'; i++ {
		n = n*10 + int(s[i]-'0')
	}
	return n, s[i:], i > 1
}
