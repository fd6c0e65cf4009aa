package simulation

import (
	"fmt"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// deterministic is the part of the page that is the same whenever it is computed.
func deterministic(s Site, ops Operations, seed uint64, partitions []Share) string {
	var b strings.Builder
	t := Year(s, ops, seed)
	fmt.Fprintf(&b, "| of %s pods in a year | GET | HEAD | LIST | PUT, POST | DELETE |\n|---|--:|--:|--:|--:|--:|\n", humanize.Comma(int64(s.Jobs*s.Pods())))
	var all Requests
	for _, row := range []struct {
		name string
		of   Requests
	}{
		{fmt.Sprintf("read %d epochs of %s shards", s.Epochs, humanize.Comma(int64(s.Jobs*s.Shards))), t.Reading},
		{fmt.Sprintf("list the input at %s starts of a job", humanize.Comma(int64(t.Failures+s.Jobs))), t.Starting},
		{fmt.Sprintf("save %s checkpoints, and remove old ones", humanize.Comma(int64(t.Saves))), t.Saving},
		{fmt.Sprintf("restore %s times", humanize.Comma(int64(t.Failures))), t.Restoring},
	} {
		all = all.plus(row.of)
		line(&b, row.name, row.of)
	}
	line(&b, "**all**", all)
	fmt.Fprintf(&b, "\n%s was read and %s saved. The %s failures cost %.1f %% of the year's work: what was done since the last checkpoint.\n",
		humanize.Bytes(uint64(t.ReadBytes)), humanize.Bytes(uint64(t.SaveBytes)), humanize.Comma(int64(t.Failures)), 100*t.Lost.Hours()/float64(s.Jobs)/(365*24))
	fmt.Fprint(&b, "\n| US dollars a year | LIST | PUT, POST | GET, HEAD | all requests | storage |\n|---|--:|--:|--:|--:|--:|\n")
	stored := float64(s.Jobs) * (float64(s.Shards)*float64(s.ShardSize) + float64(s.Keep+1)*float64(s.Pods())*float64(s.Checkpoint)) / 1e9
	for _, p := range prices {
		list, put, get := float64(all.List)/1000*p.write, float64(all.Put)/1000*p.write, float64(all.Get+all.Head)/1000*p.read
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", p.provider, dollars(list), dollars(put), dollars(get), dollars(list+put+get), dollars(12*stored*p.storageMonth))
	}
	fmt.Fprint(&b, "\n| pods that share an input | the largest part, of the mean | idle while the others wait for it |\n|--:|--:|--:|\n")
	for _, p := range partitions {
		fmt.Fprintf(&b, "| %d | %.2f | %.0f %% |\n", p.Pods, p.Slowest, 100*p.Idle)
	}
	restart(&b, s)
	return b.String()
}

// pageTime is how long a store takes for a page of a listing. Pages come one after another.
const pageTime = 40 * time.Millisecond

// restart is how long pods list their input at a start.
func restart(b *strings.Builder, s Site) {
	pages := (s.Shards + pageSize - 1) / pageSize
	one := time.Duration(pages) * pageTime
	all := max(one, time.Duration(float64(pages)*float64(s.Pods())/readsPerSecond*float64(time.Second)))
	fmt.Fprintf(b, "\n| %s pages of a listing | seconds |\n|---|--:|\n| by the pods of one node that was replaced | %.0f |\n| by all %d pods of a job, from one prefix | %.0f |\n",
		humanize.Comma(int64(pages)), one.Seconds(), s.Pods(), all.Seconds())
}

func line(b *strings.Builder, name string, r Requests) {
	fmt.Fprintf(b, "| %s | %s | %s | %s | %s | %s |\n", name, humanize.Comma(r.Get), humanize.Comma(r.Head), humanize.Comma(r.List), humanize.Comma(r.Put), humanize.Comma(r.Delete))
}

func dollars(d float64) string { return humanize.Comma(int64(d + 0.5)) }

// waveRow is a row of the table of storms.
func waveRow(name string, s Storm, w Wave) string {
	return fmt.Sprintf("| %s | %s | %s | %s | %.2f | %.1f |\n", name, humanize.Comma(int64(s.Pods)), seconds(w.Took), seconds(w.Best), w.Repeated(), w.PeakToMean())
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }
