package pai

import (
	"strconv"
	"strings"
)

// firstPort is where the ports begin for which the job names none: above those of
// usual services and below those that Linux gives to clients.
const firstPort = 20000

// ports are the first numbers of a role's port types, in their order. Fixed ones stay;
// the others follow each other from a number on. next is the first that is free behind.
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

// portList is the ports of a type, with commas between them.
func portList(first, number int) string {
	list := make([]string, number)
	for i := range list {
		list[i] = strconv.Itoa(first + i)
	}
	return strings.Join(list, ",")
}
