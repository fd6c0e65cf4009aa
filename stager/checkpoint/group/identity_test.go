package group

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"reflect"
	"slices"
)

// Two worlds are equal when all data that determine the next moves are equal. The identity is a
// digest, because an exploration stores millions of them.

// id returns the identity of a world.
func (w *world) id() [16]byte {
	b := make([]byte, 0, 16<<10)
	for _, a := range w.actors {
		if a.key == nil {
			a.key = a.canon()
		}
		b = append(b, a.key...)
	}
	for _, o := range w.store {
		b = append(append(append(append(b, o.key...), 0), o.body...), 0)
	}
	for _, l := range w.limbo {
		b = appendAll(b, l.Do, l.Key, l.Body, l.Version)
	}
	b = appendAll(b, w.left, w.runs, w.done, len(w.vacant), w.bad)
	sum := sha256.Sum256(b)
	return [16]byte(sum[:16])
}

// canon returns the identity of an actor. It ignores delays, because timers fire at any time.
func (a *actor) canon() []byte {
	m := a.m.clone()
	m.out, m.log.delay, m.view.delay, m.cfg = nil, 0, 0, Config{}
	for i := range m.saves {
		s := &m.saves[i]
		s.delay, s.waited, s.asked = 0, min(s.waited, 1), min(s.asked, 1)
		s.view, s.digests = View{Seq: s.view.Seq}, nil
	}
	b := make([]byte, 0, 4<<10)
	b = appendAll(b, a.name, a.dead, a.left, a.drains, a.trainer, a.run, a.round, a.pos, a.half, a.whole, a.guessed, a.disk, a.held, a.counts,
		m.member, m.view, m.log, m.order, m.ready, m.saves)
	for _, p := range a.pend {
		b = appendAll(b, p.Do, p.For, p.Key, len(p.Body), p.Version)
	}
	slices.SortFunc(a.timers, func(x, y Task) int {
		return cmp.Or(cmp.Compare(x.Of, y.Of), cmp.Compare(x.Save.View, y.Save.View), cmp.Compare(x.Save.Number, y.Save.Number))
	})
	sum := sha256.Sum256(appendAll(b, a.timers))
	return sum[:16]
}

// appendAll appends values so that different values never have the same encoding.
func appendAll(b []byte, values ...any) []byte {
	for _, v := range values {
		b = appendValue(b, reflect.ValueOf(v))
	}
	return b
}

func appendValue(b []byte, v reflect.Value) []byte {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			b = appendValue(b, v.Field(i))
		}
	case reflect.Slice:
		if b = binary.AppendVarint(b, int64(v.Len())); v.Type().Elem().Kind() == reflect.Uint8 {
			return append(b, v.Bytes()...)
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			b = appendValue(b, v.Index(i))
		}
	case reflect.String:
		b = append(binary.AppendVarint(b, int64(v.Len())), v.String()...)
	case reflect.Bool:
		if v.Bool() {
			return append(b, 1)
		}
		b = append(b, 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		b = binary.AppendUvarint(b, v.Uint())
	default: // panics unless it is an integer
		b = binary.AppendVarint(b, v.Int())
	}
	return b
}
