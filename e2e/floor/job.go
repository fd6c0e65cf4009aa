package floor

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
)

// rangeSize is the size of the ranges and parts of large files, in bytes, and bufSize that of one read.
const (
	rangeSize = 16 << 20
	bufSize   = 1 << 20
)

// Job is one transfer.
type Job struct {
	URL   string // of the server's directory, ending in "/"
	CA    string // a file with the certificate of the server's authority; "" for http
	Files string // a local directory with exactly the files to move
	To    string // the directory for what is received; "": the files are sent
	Conns int    // connections in use at once
}

// Args are the arguments from which Run makes the same job.
func (j Job) Args() []string {
	return []string{"-url", j.URL, "-ca", j.CA, "-files", j.Files, "-to", j.To, "-conns", strconv.Itoa(j.Conns)}
}

// Run does the job that args describe.
func Run(args []string) error {
	var j Job
	flags := flag.NewFlagSet("floor", flag.ContinueOnError)
	flags.StringVar(&j.URL, "url", "", "")
	flags.StringVar(&j.CA, "ca", "", "")
	flags.StringVar(&j.Files, "files", "", "")
	flags.StringVar(&j.To, "to", "", "")
	flags.IntVar(&j.Conns, "conns", 1, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	return j.Run()
}

// file is one to move. Its parts share what is open.
type file struct {
	name string
	size int64

	mu     sync.Mutex // guards all below
	open   *os.File   // for what is received in ranges
	upload string     // id of the upload in parts
	left   int        // parts that are not sent
}

// piece is a file, or a range of a large one.
type piece struct {
	*file

	from, size int64
	number     int // of the part, from 1; 0 for a whole file
}

// pieces lists what there is to do, in order.
func (j Job) pieces() (all []piece, err error) {
	entries, err := os.ReadDir(j.Files)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		f := &file{name: e.Name(), size: info.Size()}
		if f.size <= rangeSize {
			all = append(all, piece{file: f, size: f.size})
			continue
		}
		for from := int64(0); from < f.size; from += rangeSize {
			f.left++
			all = append(all, piece{f, from, min(rangeSize, f.size-from), f.left})
		}
	}
	return all, nil
}

// Run moves all files.
func (j Job) Run() error {
	server, err := url.Parse(j.URL)
	if err != nil {
		return err
	}
	config := &tls.Config{ServerName: server.Hostname(), ClientSessionCache: tls.NewLRUClientSessionCache(1)}
	if j.CA != "" {
		pem, err := os.ReadFile(j.CA)
		if err != nil {
			return err
		}
		config.RootCAs = x509.NewCertPool()
		config.RootCAs.AppendCertsFromPEM(pem)
	}
	pieces, err := j.pieces()
	if err != nil {
		return err
	}
	var next atomic.Int64
	errs := make([]error, j.Conns)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			c, err := dial(server, config, make([]byte, bufSize))
			if err != nil {
				errs[i] = err
				return
			}
			defer c.Close()
			for n := next.Add(1) - 1; n < int64(len(pieces)) && errs[i] == nil; n = next.Add(1) - 1 {
				p := pieces[n]
				path := server.EscapedPath() + url.PathEscape(p.name)
				if j.To == "" {
					err = j.send(c, path, p)
				} else {
					err = j.receive(c, path, p)
				}
				if err != nil {
					errs[i] = fmt.Errorf("%s: %w", p.name, err)
				}
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// receive gets one piece.
func (j Job) receive(c *conn, path string, p piece) error {
	c.begin("GET", path)
	if p.number > 0 {
		c.head = fmt.Appendf(c.head, "Range: bytes=%d-%d\r\n", p.from, p.from+p.size-1)
	}
	if err := c.send(nil); err != nil {
		return err
	}
	n, err := c.answer()
	if err != nil {
		return err
	}
	if n != p.size {
		return fmt.Errorf("the server answered %d bytes, want %d", n, p.size)
	}
	to, err := j.create(p)
	if err != nil {
		return err
	}
	for n := int64(0); n < p.size; {
		part := c.buf[:min(int64(len(c.buf)), p.size-n)]
		if _, err := io.ReadFull(c.in, part); err != nil {
			return err
		}
		if _, err := to.WriteAt(part, p.from+n); err != nil {
			return err
		}
		n += int64(len(part))
	}
	if p.number > 0 {
		return nil // the process is about to end
	}
	return to.Close()
}

// create creates the file of a piece, or returns it if another piece has created it.
func (j Job) create(p piece) (*os.File, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var err error
	if p.open == nil {
		p.open, err = os.OpenFile(filepath.Join(j.To, p.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	}
	return p.open, err
}

// send puts one piece.
func (j Job) send(c *conn, path string, p piece) error {
	id, err := p.begin(c, path)
	if err != nil {
		return err
	}
	from, err := os.Open(filepath.Join(j.Files, p.name))
	if err != nil {
		return err
	}
	defer from.Close()
	if p.number > 0 {
		c.begin("PUT", fmt.Sprintf("%s?partNumber=%d&uploadId=%s", path, p.number, url.QueryEscape(id)))
	} else {
		c.begin("PUT", path)
	}
	c.add("Content-Length", p.size)
	if p.size <= int64(len(c.buf)) {
		if _, err := io.ReadFull(io.NewSectionReader(from, p.from, p.size), c.buf[:p.size]); err != nil {
			return err
		}
		err = c.send(c.buf[:p.size])
	} else if err = c.send(nil); err == nil {
		err = c.sendFile(from, p.from, p.size)
	}
	if err != nil {
		return err
	}
	if _, err := c.body(); err != nil {
		return err
	}
	return p.end(c, path)
}

// begin starts the upload in parts of a large file, once, and returns its id.
func (p piece) begin(c *conn, path string) (id string, err error) {
	if p.number == 0 {
		return "", nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.upload != "" {
		return p.upload, nil
	}
	c.begin("POST", path+"?uploads")
	c.add("Content-Length", 0)
	if err := c.send(nil); err != nil {
		return "", err
	}
	text, err := c.body()
	if err != nil {
		return "", err
	}
	var started struct{ UploadId string }
	err = xml.Unmarshal(text, &started)
	p.upload = started.UploadId
	return p.upload, err
}

// end completes the upload of a large file after its last part. The parts have no ETags, which the bench's own
// server does not need.
func (p piece) end(c *conn, path string) error {
	if p.number == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left--; p.left > 0 {
		return nil
	}
	var list []byte
	for n := int64(0); n*rangeSize < p.file.size; n++ {
		list = fmt.Appendf(list, "<Part><PartNumber>%d</PartNumber></Part>", n+1)
	}
	list = fmt.Appendf(nil, "<CompleteMultipartUpload>%s</CompleteMultipartUpload>", list)
	c.begin("POST", path+"?uploadId="+url.QueryEscape(p.upload))
	c.add("Content-Length", int64(len(list)))
	if err := c.send(list); err != nil {
		return err
	}
	_, err := c.body()
	return err
}
