package jobspec

import (
	"bytes"
	"fmt"
	"syscall"
	"testing"
	"time"
)

// megabyte returns a one-megabyte file of Jobs that all request data.
func megabyte() []byte {
	var file bytes.Buffer
	for i := 0; file.Len() < 1<<20; i++ {
		fmt.Fprintf(&file, `apiVersion: batch/v1
kind: Job
metadata:
  name: train-%d
spec:
  completions: 4   # nodes
  parallelism: 4
  completionMode: Indexed
  template:
    metadata:
      labels: {app: train}
      annotations:
        stager.dev/in.train: "s3://b/train/ -> /data/train ? mode=window&size=80Gi"
    spec:
      restartPolicy: Never
      containers:
      # the trainer
      - name: main
        image: pytorch/pytorch
        command: [python, train.py]
        args:
        - --epochs=3
        - "--verbose"
        env:
        - name: A
          value: "1"
        resources:
          limits: {nvidia.com/gpu: 8, memory: 64Gi}
        volumeMounts:
        - name: scratch
          mountPath: /scratch
      volumes:
      - name: scratch
        emptyDir: {}
---
`, i)
	}
	return file.Bytes()
}

// BenchmarkInject reports cpu-ms, the time of all processors for one file, beside the elapsed time,
// which depends on what else the machine does.
func BenchmarkInject(b *testing.B) {
	file := megabyte()
	injected, err := Inject(file, Options{})
	if err != nil {
		b.Fatal(err)
	}
	for name, text := range map[string][]byte{"first": file, "again": injected.Output} {
		b.Run(name, func(b *testing.B) {
			measured(b, text)
		})
	}
	b.Run("not asked", func(b *testing.B) {
		text := bytes.ReplaceAll(file, []byte("stager.dev/in.train"), []byte("example.com/note"))
		measured(b, text)
	})
}

func measured(b *testing.B, text []byte) {
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	before := processorTime(b)
	for b.Loop() {
		if _, err := Inject(text, Options{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((processorTime(b)-before).Microseconds())/1000/float64(b.N), "cpu-ms/op")
}

// processorTime returns the time that all processors have spent on this process.
func processorTime(t testing.TB) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
