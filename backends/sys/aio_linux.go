package sys

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WriteUnlocked is f.WriteAt for a file that is open for direct I/O and writes of aligned memory. It
// lets other writes to the file begin while its data wait for the disk: pwrite(2) holds the lock of the
// file until then, and a write through the page cache waits with it. io_submit(2) only holds the lock
// until the request is at the device.
//
// If the kernel refuses asynchronous requests, or too many are in flight, it is f.WriteAt.
func WriteUnlocked(f *os.File, p []byte, off int64) (n int, err error) {
	q, ok := unusedQueues.take()
	if !ok {
		return f.WriteAt(p, off)
	}
	defer func() { unusedQueues.give(q) }()
	for n < len(p) {
		m, err := q.write(f, p[n:], off+int64(n))
		if errors.Is(err, unix.EAGAIN) {
			m, err = f.WriteAt(p[n:], off+int64(n))
			return n + m, err
		}
		n += m
		if err == nil && m == 0 {
			err = io.ErrShortWrite
		}
		if err != nil {
			return n, &os.PathError{Op: "write", Path: f.Name(), Err: err}
		}
	}
	return n, nil
}

// aioQueue is a queue of asynchronous requests, of which it holds one at a time (aio_context_t).
type aioQueue uintptr

// aioRequest is struct iocb of linux/aio_abi.h. The two fields whose order depends on the machine are
// zero here.
type aioRequest struct {
	_         uint64    // aio_data
	_         [2]uint32 // aio_key, aio_rw_flags
	operation uint16
	_         int16 // aio_reqprio
	file      uint32
	memory    uint64
	bytes     uint64
	offset    int64
	_         uint64 // aio_reserved2
	_         [2]uint32
}

// aioWrite is IOCB_CMD_PWRITE.
const aioWrite = 1

// aioEvent is struct io_event.
type aioEvent struct {
	data, request uint64
	result, _     int64
}

// write writes p once, which may be in part.
func (q *aioQueue) write(f *os.File, p []byte, off int64) (int, error) {
	var pinned runtime.Pinner // the kernel has the address of p while it reads it
	defer pinned.Unpin()
	at := unsafe.SliceData(p)
	pinned.Pin(at)
	request := &aioRequest{operation: aioWrite, file: uint32(f.Fd()), memory: uint64(uintptr(unsafe.Pointer(at))), bytes: uint64(len(p)), offset: off}
	for {
		_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, uintptr(*q), 1, uintptr(unsafe.Pointer(&request)))
		if errno == 0 {
			break
		}
		if errno != unix.EINTR {
			return 0, errno
		}
	}
	var event aioEvent
	for {
		n, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, uintptr(*q), 1, 1, uintptr(unsafe.Pointer(&event)), 0, 0)
		switch {
		case errno == 0 && n == 1:
			runtime.KeepAlive(f)
			if event.result < 0 {
				return 0, unix.Errno(-event.result)
			}
			return int(event.result), nil
		case errno != 0 && errno != unix.EINTR:
			q.destroy() // waits until the kernel no longer reads the data
			return 0, errno
		}
	}
}

// destroy removes a queue, after all of its requests.
func (q *aioQueue) destroy() {
	unix.Syscall(unix.SYS_IO_DESTROY, uintptr(*q), 0, 0) //nolint:errcheck // the process can do nothing about it
	*q = 0
}

// mostQueues limits the asynchronous requests in flight. The kernel has a limit for all processes
// (/proc/sys/fs/aio-max-nr, 65536 unless set).
const mostQueues = 64

// unusedQueues holds the queues of this process that are not in use.
var unusedQueues queuePool

// queuePool holds queues that are not in use. They are removed when none was used for unusedFor: a process
// that has one takes 30 to 60 ms to end. A new one takes 0.05 ms.
type queuePool struct {
	mu       sync.Mutex
	idle     []aioQueue
	made     int  // idle or in use
	refused  bool // the kernel refuses another one
	given    int  // how often one was no longer in use
	watching bool // removeUnused runs
}

const unusedFor = 10 * time.Millisecond

func (p *queuePool) take() (q aioQueue, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n := len(p.idle); n > 0 {
		q, p.idle = p.idle[n-1], p.idle[:n-1]
		return q, true
	}
	if p.refused || p.made >= mostQueues {
		return 0, false
	}
	if q, ok = newQueue(); !ok {
		p.refused = true
		return 0, false
	}
	p.made++
	return q, true
}

// newQueue returns a queue if the kernel permits all calls that it needs.
func newQueue() (q aioQueue, ok bool) {
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&q)), 0); errno != 0 {
		return 0, false
	}
	var event aioEvent
	if _, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, uintptr(q), 0, 1, uintptr(unsafe.Pointer(&event)), uintptr(unsafe.Pointer(&unix.Timespec{})), 0); errno != 0 {
		q.destroy()
		return 0, false
	}
	return q, true
}

// give returns a queue that take returned, or zero if it was destroyed.
func (p *queuePool) give(q aioQueue) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.given++
	if q == 0 {
		p.made--
		return
	}
	p.idle = append(p.idle, q)
	if !p.watching {
		p.watching = true
		go p.removeUnused()
	}
}

// removeUnused removes the idle queues once no queue was used for unusedFor.
func (p *queuePool) removeUnused() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for given := -1; given != p.given; {
		given = p.given
		p.mu.Unlock()
		time.Sleep(unusedFor)
		p.mu.Lock()
	}
	for _, q := range p.idle { // each takes as long as all together
		go q.destroy()
	}
	p.idle, p.made, p.watching = nil, p.made-len(p.idle), false
}
