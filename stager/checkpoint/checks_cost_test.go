package checkpoint

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/backends/mem"
	"github.com/stager-dev/stager/stager/checkpoint/detect"
)

// cpuTime returns the CPU time that this process has used.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// tensorsOf is a safetensors file of many tensors of the same size.
func tensorsOf(count, size int) string {
	var header strings.Builder
	for i := range count {
		fmt.Fprintf(&header, `%c"model.layers.%d.weight":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}`, ",{"[(count-i)/count], i, size, i*size, (i+1)*size)
	}
	header.WriteByte('}')
	return string(binary.LittleEndian.AppendUint64(nil, uint64(header.Len()))) + header.String() + strings.Repeat("x", count*size)
}

// archiveOf is a zip archive of many tensors, stored as torch.save does.
func archiveOf(b *testing.B, count, size int) string {
	b.Helper()
	var text bytes.Buffer
	z := zip.NewWriter(&text)
	for i := range count {
		w, err := z.CreateHeader(&zip.FileHeader{Name: fmt.Sprintf("archive/data/%d", i)})
		if err == nil {
			_, err = w.Write(bytes.Repeat([]byte("x"), size))
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		b.Fatal(err)
	}
	return text.String()
}

// Structure checks cost less than 1 % of the CPU time of the upload of their files. The benchmark
// uploads a checkpoint of 128 MiB once and scans it a hundred times. Each scan treats all of its
// files as changed. A check reads only headers, so its time grows with the number of tensors. The
// mean of BERT-base is 2 MiB; a tensor of 64 KiB is small.
func BenchmarkStructureChecks(b *testing.B) {
	for _, size := range []int{1 << 20, 64 << 10} {
		b.Run(fmt.Sprintf("tensors of %d KiB", size>>10), func(b *testing.B) { benchmarkStructureChecks(b, size) })
	}
}

func benchmarkStructureChecks(b *testing.B, size int) {
	const files, looks, total = 4, 100, 16 << 20
	count := total / size
	dir := b.TempDir()
	for i := range files {
		write(b, filepath.Join(dir, "step-1"), map[string]string{
			fmt.Sprintf("model-%d.safetensors", i): tensorsOf(count, size), fmt.Sprintf("optim-%d.pt", i): archiveOf(b, count, size),
		})
	}
	var checks, uploads time.Duration
	for b.Loop() {
		u, err := New(Config{Output: "ckpt", Dir: dir, Store: newStore(mem.New())})
		if err != nil {
			b.Fatal(err)
		}
		t, err := openTree(u.root, "step-1")
		if err != nil {
			b.Fatal(err)
		}
		list, _, err := t.files()
		if err != nil {
			b.Fatal(err)
		}
		began := cpuTime(b)
		for range looks {
			delete(u.detection.trails, "step-1")
			v, err := u.detection.weigh(t, "step-1", list)
			if err != nil {
				b.Fatal(err)
			}
			if j := detect.Judge(v, &u.detection.shapes, time.Hour); j.Kind != detect.Waiting {
				b.Fatalf("got %+v, want that it waits", j)
			}
		}
		checks += cpuTime(b) - began
		t.close()
		began = cpuTime(b)
		if _, err := u.Commit(b.Context(), CommitRequest{Path: "step-1", Step: -1}); err != nil {
			b.Fatal(err)
		}
		if err := u.Sync(b.Context()); err != nil {
			b.Fatal(err)
		}
		uploads += cpuTime(b) - began
		if err := errors.Join(u.Close(), os.RemoveAll(filepath.Join(dir, private))); err != nil { // forget what was sent
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(checks.Microseconds())/looks/float64(b.N), "check-us")
	b.ReportMetric(float64(uploads.Microseconds())/float64(b.N), "upload-us")
	b.ReportMetric(100*float64(checks)/looks/float64(uploads), "%-of-upload")
}
