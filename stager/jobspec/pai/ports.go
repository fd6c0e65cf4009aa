package pai

import (
	"strconv"
	"strings"
)

// firstPort is the first port that is assigned to ports without a number. It is above well-known
// services and below Linux' ephemeral ports.
const firstPort = 20000

// portsFrom returns the first port of each of a role's port types, in order. Fixed ports stay as
// they are; the others are assigned consecutively, starting at from. next is the first free port
// after them.
func (t *role) portsFrom(from int) (first []int, next int) {
	taken := func(begin, number int) (until int) {
		for _, p := range t.ports {
			if p.begin > 0 && begin < p.begin+p.number && p.begin < begin+number {
				until = max(until, p.begin+p.number)
			}
		}
		return until
	}
	for _, p := range t.ports {
		if p.begin > 0 {
			first = append(first, p.begin)
			continue
		}
		for until := taken(from, p.number); until > 0; until = taken(from, p.number) {
			from = until
		}
		first = append(first, from)
		from += p.number
	}
	return first, from
}

// portList returns the ports of a type, separated by commas.
func portList(first, number int) string {
	list := make([]string, number)
	for i := range list {
		list[i] = strconv.Itoa(first + i)
	}
	return strings.Join(list, ",")
}
