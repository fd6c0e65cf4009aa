package objectstore

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestRotationDistinguishesReplacedKeysFromWrongOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r Rotation[string]
		rejected := func(when, files string, others, again bool) {
			t.Helper()
			if gotOthers, gotAgain := r.Rejected(files); gotOthers != others || gotAgain != again {
				t.Errorf("%s: others %v, again %v; want %v and %v", when, gotOthers, gotAgain, others, again)
			}
		}
		r.Use("a")
		rejected("the only key", "a", false, false)
		rejected("the files have the next key", "b", true, true)
		r.Use("b")
		r.Use("b")
		rejected("a request of before the change", "b", false, true)
		time.Sleep(lateRejection)
		rejected("the next key is wrong, too", "b", false, false)
	})
}
