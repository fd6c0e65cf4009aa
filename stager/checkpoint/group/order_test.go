package group

import (
	"slices"
	"testing"
)

// An announcement names what its node saw before. A node that was restarted while the trainer wrote
// a step again has never reported the first writing, and does not name it. The second writing was
// then placed before the first one, which other nodes held: they announced the first one as newer,
// and the second was never saved.
func TestAnnouncedWritingFollowsEarlierOnesOfItsStep(t *testing.T) {
	first, second := WritingOf{Step: 2, Writing: 1}, WritingOf{Step: 2, Writing: 2}
	one, three := WritingOf{Step: 1, Writing: 1}, WritingOf{Step: 3, Writing: 1}
	restarted := WritingOf{Round: 1, Step: 2, Writing: 1}
	for name, tt := range map[string]struct {
		known, before []WritingOf
		announced     WritingOf
		want          []WritingOf
	}{
		"the first writing is not named":           {[]WritingOf{one, first}, []WritingOf{one}, second, []WritingOf{one, first, second}},
		"nothing is named":                         {[]WritingOf{one, first}, nil, second, []WritingOf{one, first, second}},
		"it is named":                              {[]WritingOf{one, first}, []WritingOf{one, first}, second, []WritingOf{one, first, second}},
		"another step is named that is not known":  {[]WritingOf{first}, []WritingOf{one}, second, []WritingOf{one, first, second}},
		"an earlier step that this node saw later": {[]WritingOf{one, three}, []WritingOf{one}, first, []WritingOf{one, first, three}},
		"a writing of a later round":               {[]WritingOf{restarted}, nil, second, []WritingOf{second, restarted}},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Machine{order: tt.known}
			m.learnOrder(Announcement{Round: tt.announced.Round, Step: tt.announced.Step, Writing: tt.announced.Writing, Before: tt.before})
			if !slices.Equal(m.order, tt.want) {
				t.Errorf("got the order %v, want %v", m.order, tt.want)
			}
		})
	}
}
