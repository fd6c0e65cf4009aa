package sys

import (
	"errors"
	"io"
	"os"
	"runtime"
	"sync"
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
	q, ok := takeQueue()
	if !ok {
		return f.WriteAt(p, off)
	}
	defer func() { giveQueue(q) }()
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

// queues holds the queues of this process that are not in use. The process ends with them: the kernel
// takes milliseconds to remove one.
var queues struct {
	mu   sync.Mutex
	idle []aioQueue
	made int // mostQueues if the kernel refuses another one
}

func takeQueue() (q aioQueue, ok bool) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if n := len(queues.idle); n > 0 {
		q, queues.idle = queues.idle[n-1], queues.idle[:n-1]
		return q, true
	}
	if queues.made >= mostQueues {
		return 0, false
	}
	if q, ok = newQueue(); !ok {
		queues.made = mostQueues
		return 0, false
	}
	queues.made++
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

func giveQueue(q aioQueue) {
	queues.mu.Lock()
	defer queues.mu.Unlock()
	if q != 0 {
		queues.idle = append(queues.idle, q)
	}
}
