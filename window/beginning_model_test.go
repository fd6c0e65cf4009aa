package window

import (
	"fmt"
	"strconv"
	"strings"

	"pgregory.net/rapid"
)

// beginModel makes the window of a model begin with the first items of its plan.
func (m *model) beginModel() {
	whole := m.whole
	whole.Reuse, whole.Groups, whole.Order = ReuseNone, 1, nil
	items := listOf(whole)
	whole.Order = func(int) Order { return indexes(len(items)) }
	m.whole = beginning(whole, len(items))
	m.whole.Beginning = false
	m.whole.Manifest = whole.Manifest
	m.cfg = beginning(whole, rapid.IntRange(1, len(items)).Draw(m.rt, "begins with"))
	m.cfg.Unconfirmed = false
}

// beginning returns the configuration of the first n items of a plan in the order of its items.
func beginning(whole Config, n int) Config {
	c := whole
	c.Beginning, c.Manifest = true, fmt.Sprintf("first-%d", n)
	c.Items, c.Extent = listOf(whole)[:n], nil
	c.Order = func(int) Order { return indexes(n) }
	c.Begins = func(manifest string) int {
		first, is := strings.CutPrefix(manifest, "first-")
		if k, err := strconv.Atoi(first); is && err == nil && k <= n {
			return k
		}
		return 0
	}
	return c
}

func indexes(n int) (order Indexes) {
	for i := range n {
		order = append(order, int32(i))
	}
	return order
}

// continued gives the window the whole plan, if it has not got it.
func (m *model) continued() {
	if !m.Beginning() {
		return
	}
	m.check(m.Continue(m.t.Context(), m.whole))
	m.cfg = m.whole
	m.cfg.Unconfirmed = false
}

// beginningOps are the steps of a window that begins with the first items of its plan, beside those of any
// other. It rarely loses its journal: what is delivered afterwards proves less.
func (m *model) beginningOps(ops map[string]func(*rapid.T)) map[string]func(*rapid.T) {
	const lose = "crash and lose the journal"
	loses := ops[lose]
	rarely := func() bool { return rapid.IntRange(0, 7).Draw(m.rt, "rarely") == 5 } // small numbers are frequent
	return map[string]func(*rapid.T){
		lose: func(rt *rapid.T) {
			if !m.cfg.Beginning || rarely() {
				loses(rt)
			}
		},
		"continue": func(*rapid.T) {
			if rarely() {
				m.continued()
			}
		},
		"crash while it continues": func(*rapid.T) {
			if m.cfg.Beginning && rarely() {
				m.check(m.renameState(m.whole.planName()))
				m.cfg = m.whole
			}
			m.crashed()
		},
		"crash, and more is listed": func(*rapid.T) {
			if m.cfg.Beginning {
				n, most := m.cfg.Items.Len(), m.whole.Items.Len()
				if now := rapid.IntRange(n, most).Draw(m.rt, "listed"); rarely() {
					m.cfg = m.whole
				} else {
					m.cfg = beginning(m.whole, now)
					m.cfg.Unconfirmed = false
				}
			}
			m.crashed()
		},
	}
}

// crashed kills the window. Its readers may come back.
func (m *model) crashed() {
	for id := range m.held {
		m.found[id] = true
	}
	m.crash()
}
