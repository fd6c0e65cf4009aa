package bench

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Entry is one line of a file of results, as JSON. Exactly one of its fields is set.
type Entry struct {
	Start   *Start   `json:"start,omitempty"` // of the first line
	Result  *Result  `json:"result,omitempty"`
	Listing *Listing `json:"listing,omitempty"`
	Note    string   `json:"note,omitempty"`
}

// Start says on which machine, when and with which arguments a bench began.
type Start struct {
	Machine
	Date     time.Time `json:"date"`
	Pairs    int       `json:"pairs"` // of each row, at least
	Only     string    `json:"only"`  // the suites, with commas between
	Row      string    `json:"row,omitempty"`
	Beside   string    `json:"beside,omitempty"` // the version of the other stager
	Size     int64     `json:"size"`
	Files    int64     `json:"files"`
	FileSize int64     `json:"fileSize"`
}

// Write writes the entry as one line, in one call of Write. A file of results is complete
// up to its last line whenever the bench is aborted.
func (e Entry) Write(to io.Writer) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	_, err = to.Write(append(line, '\n'))
	return err
}

// Report is all that a bench has found.
type Report struct {
	Start    Start
	Results  []Result
	Listings []Listing
	Notes    []string
}

// Add adds what one line contains.
func (r *Report) Add(e Entry) {
	switch {
	case e.Start != nil:
		r.Start = *e.Start
	case e.Result != nil:
		r.Results = append(r.Results, *e.Result)
	case e.Listing != nil:
		r.Listings = append(r.Listings, *e.Listing)
	case e.Note != "":
		r.Notes = append(r.Notes, e.Note)
	}
}

// ReadReport reads a file of results. Its errors name the file and the line.
func ReadReport(name string) (Report, error) {
	file, err := os.Open(name)
	if err != nil {
		return Report{}, err
	}
	defer file.Close()
	report, err := readReport(file)
	if err != nil {
		return Report{}, fmt.Errorf("%s: %w", name, err)
	}
	return report, nil
}

func readReport(from io.Reader) (report Report, err error) {
	in := bufio.NewReader(from)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 && n > 1 {
			return report, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return report, err
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil || (n == 1) != (e.Start != nil) {
			return report, fmt.Errorf("line %d is not what bench -json writes; it writes one JSON object a line, the first with the machine", n)
		}
		report.Add(e)
	}
}
