package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/stager-dev/stager/e2e/servers"
	"github.com/stager-dev/stager/e2e/trial"
)

// Config says what is run. It takes root, for volumes.
type Config struct {
	Stager    string                       // the binary
	Store     *servers.S3                  // with its objects in Work/store, and a bucket Bucket; Run restarts it
	Work      string                       // an empty directory with a short name, for sockets
	ReaderCmd func(trial.Reader) *exec.Cmd // starts a process that calls Reader.Run
	For       time.Duration
	Seed      uint64
	Say       io.Writer // progress, for people
	// Prove means that series must be proved to be flat. A run of a minute or two cannot prove anything,
	// and only fails when a promise is broken or a series is proved to grow.
	Prove bool
}

// Bucket is the bucket in which all happens.
const Bucket = "soak"

const (
	shards, shardSize = 240, 48 << 10
	windowSize        = 4 << 20
	readersEach       = 3
	volumeSize        = 48 << 20
	stalls            = 3 * time.Minute // a node that makes no progress for so long has stopped
)

// soak is a run.
type soak struct {
	Config
	began   time.Time
	proxy   *servers.Proxy
	feeders []*feeder
	savers  []*saver
	secrets string

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	broken []string
	counts map[string]int // of faults and checks
	series map[string]*series
}

// Run carries a run out. An error means that it could not be carried out; the Result has the rest.
func Run(ctx context.Context, cfg Config) (result *Result, err error) {
	s := &soak{Config: cfg, secrets: filepath.Join(cfg.Work, "secrets"), random: rand.New(rand.NewPCG(cfg.Seed, 1)), counts: make(map[string]int), series: make(map[string]*series)}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	s.began = time.Now()
	during, stop := context.WithTimeout(ctx, cfg.For)
	defer stop()
	var work sync.WaitGroup
	errs := make(chan error, 16)
	run := func(f func(context.Context) error) {
		work.Go(func() {
			if err := f(during); err != nil && during.Err() == nil {
				errs <- err
				stop()
			}
		})
	}
	for _, f := range s.feeders {
		run(f.follow)
		run(f.look)
	}
	for _, v := range s.savers {
		run(v.train)
		run(v.restoreOften)
	}
	run(s.disturb)
	run(s.sampleOften)
	work.Wait()
	select {
	case err := <-errs:
		return nil, err
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := s.finish(ctx); err != nil {
		return nil, err
	}
	return s.result(), nil
}

// start starts the store, fills it, and starts all that uses it.
func (s *soak) start(ctx context.Context) (err error) {
	if s.proxy, err = servers.NewProxy(s.Store.Endpoint); err != nil {
		return err
	}
	if err := s.writeSecrets(); err != nil {
		return err
	}
	for i, name := range []string{"feed-steady", "feed-killed", "save-steady", "save-killed"} {
		n, err := s.newNode(name)
		if err != nil {
			return err
		}
		if i < 2 {
			f, err := s.newFeeder(ctx, n)
			if err != nil {
				return err
			}
			s.feeders = append(s.feeders, f)
		} else {
			s.savers = append(s.savers, s.newSaver(n))
		}
		if err := n.start(); err != nil {
			return err
		}
	}
	for _, f := range s.feeders {
		for i := range readersEach {
			if err := f.startReader(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// writeSecrets has all commands use the credentials that the store knows now.
func (s *soak) writeSecrets() error {
	dir := filepath.Join(s.secrets, secret)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{"AWS_ACCESS_KEY_ID": s.Store.AccessKey, "AWS_SECRET_ACCESS_KEY": s.Store.SecretKey} {
		next := filepath.Join(s.secrets, name)
		if err := errors.Join(os.WriteFile(next, []byte(text), 0o600), os.Rename(next, filepath.Join(dir, name))); err != nil {
			return err
		}
	}
	return nil
}

// secret is the name of the Secret with the credentials.
const secret = "s3"

// command is stager with the store behind the proxy.
func (s *soak) command(args ...string) *exec.Cmd {
	secrets := filepath.Join(s.secrets, secret)
	if args[0] == "run" {
		secrets = s.secrets
	}
	cmd := exec.Command(s.Stager, append(args, "--secrets", secrets, "--stall-after", "5s")...)
	cmd.Env = append(os.Environ(), "AWS_ENDPOINT_URL_S3="+s.proxy.URL, "AWS_REGION="+s.Store.Region)
	return cmd
}

// breach notes a promise that was broken.
func (s *soak) breach(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("after %v: ", time.Since(s.began).Round(time.Second)) + fmt.Sprintf(format, args...)
	if s.broken = append(s.broken, text); len(s.broken) <= 20 {
		fmt.Fprintln(s.Say, "BROKEN", text)
	}
}

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// below returns a random number from 0 to n-1.
func (s *soak) below(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.random.IntN(n)
}

// between returns a random time from least to twice that.
func (s *soak) between(least time.Duration) time.Duration {
	return least + time.Duration(s.below(int(least)))
}

// pause waits, and reports whether ctx has not ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// finish ends the daemons as pods end, without faults, and checks what must then be so.
func (s *soak) finish(ctx context.Context) error {
	s.proxy.Calm()
	for _, v := range s.savers {
		if code := v.terminate(); code != 0 {
			s.breach("%s ended with code %d", v.name, code)
		}
		if step, err := v.restore(ctx); err != nil {
			return err
		} else if step != v.written {
			s.breach("%s: step %d is restored at the end, want %d, the last that was written", v.name, step, v.written)
		}
		cmd := s.command("checkpoints", "--verify", v.url)
		if out, err := cmd.CombinedOutput(); err != nil {
			s.breach("%s: checkpoints --verify: %v\n%s", v.name, err, out)
		}
	}
	for _, f := range s.feeders {
		f.endReaders()
		if code := f.terminate(); code != 0 {
			s.breach("%s ended with code %d", f.name, code)
		}
		f.judge()
	}
	for _, n := range s.nodes() {
		n.endSampling()
		peak, looks, err := n.volume.Peak()
		if err != nil {
			return err
		}
		s.counts["samples of volumes"] += looks
		if n.window > 0 && peak > n.window {
			s.breach("%s: %d bytes of its volume were in use, and its window's size is %d", n.name, peak, n.window)
		}
		n.peak = peak
	}
	return nil
}

func (s *soak) nodes() (all []*node) {
	for _, f := range s.feeders {
		all = append(all, f.node)
	}
	for _, v := range s.savers {
		all = append(all, v.node)
	}
	return all
}

func (s *soak) close() (err error) {
	for _, f := range s.feeders {
		f.endReaders()
	}
	for _, n := range s.nodes() {
		n.kill()
		n.endSampling()
		err = errors.Join(err, unix.Unmount(n.dir, unix.MNT_DETACH))
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	return err
}
