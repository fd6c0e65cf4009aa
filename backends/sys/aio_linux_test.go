package sys

import (
	"testing"
	"testing/synctest"
	"time"
)

// A process with a queue took 30 to 60 ms longer to end: the kernel waits until no processor can use it.
func TestUnusedQueuesAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var p queuePool
		for range 3 {
			var taken []aioQueue
			for range 2 {
				q, ok := p.take()
				if !ok {
					t.Fatal("the kernel refuses asynchronous requests")
				}
				taken = append(taken, q)
			}
			p.give(taken[0])
			time.Sleep(3 * unusedFor)
			synctest.Wait()
			if p.made != 1 || len(p.idle) != 0 {
				t.Errorf("%d queues are left, %d of them idle, while one is in use, want 1 and 0", p.made, len(p.idle))
			}
			p.give(taken[1])
			time.Sleep(3 * unusedFor)
			synctest.Wait()
			if p.made != 0 || p.watching {
				t.Errorf("%d queues are left, watched %v, want none", p.made, p.watching)
			}
		}
	})
}
