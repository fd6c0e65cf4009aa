package checkpoint

import (
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/window/disk"
)

// readPlain reads a file that the trainer wrote, up to limit bytes. It follows links within root,
// because trainers create them. It never blocks on a FIFO or device.
func readPlain(root *os.Root, p string, limit int64) ([]byte, error) {
	file, err := root.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer file.Close() // opened for reading
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = &disk.NotRegularError{Path: p, Mode: info.Mode()}
	}
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = &disk.TooLargeError{Path: p, Limit: limit}
	}
	return text, err
}
