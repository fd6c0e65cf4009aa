package trial

import (
	"testing"
	"time"
)

// A window takes no more than its size on each file system, with all that lies beside the shards:
// directories, journal and reports. Readers and stager are killed meanwhile. A window of 8 MiB took
// 59 MB of deep trees, and one of 16 MiB took 99 MB of archives of empty directories.
func TestWindowKeepsToItsSizeOnEachFileSystem(t *testing.T) {
	count, epochs := 24, 2
	kills := []float64{0.3, 0.7}
	if full {
		count, epochs, kills = 200, 5, evenly(20)
	}
	binary := build(t)
	s3 := anS3(t)
	files := s3.fill(t, binary, "files", count, 100_000)
	loose, archives := t.TempDir(), t.TempDir()
	bundles, trees := shards{count: count, size: 16 * 4096}, shards{count: count}
	var err error
	if bundles.digests, err = PackLoose(loose, count, 16, 1000); err != nil {
		t.Fatal(err)
	}
	if trees.digests, err = PackArchives(archives, count, 16, 1000); err != nil {
		t.Fatal(err)
	}
	s3.push(t, binary, loose, "bundles")
	s3.push(t, binary, archives, "archives")
	for _, kind := range []string{"ext4", "tmpfs", "xfs"} {
		for _, tt := range []struct {
			name string
			all  shards
			cfg  Config
		}{
			{"files", files, Config{Window: 1 << 20}},
			{"bundles", bundles, Config{Window: 1 << 20, Items: bundlesOf(bundles.size)}},
			{"archives", trees, Config{Window: 2 << 20, Items: "expand: 1000", Unpack: true}},
		} {
			t.Run(kind+" "+tt.name, func(t *testing.T) {
				t.Parallel()
				cfg, killed := tt.cfg, 0
				cfg.Volume, cfg.Readers, cfg.Pace, cfg.Epochs, cfg.KillStager = kind, 2, 40*time.Millisecond, epochs, kills
				cfg.KillReaders = func(acked, total int) bool { // no shard is given up after two deaths
					if killed == 2 || acked < (killed+1)*total/3 {
						return false
					}
					killed++
					return true
				}
				report, _ := s3.window(t, binary, tt.name, tt.all, cfg)
				if report.PeakBytes == 0 || kind != "xfs" && report.VolumePeak == 0 {
					t.Error("nothing was measured")
				}
			})
		}
	}
}
