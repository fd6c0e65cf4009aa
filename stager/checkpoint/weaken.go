package checkpoint

// weaken turns single protections against other processes off. Only tests set it, to
// show that the exploration of interleavings finds what each protection prevents. In the
// product all are false.
var weaken struct {
	unconditional bool // COMMIT.json is replaced whatever it says now
	lookOnce      bool // data is not looked up again after COMMIT
	tidyYoung     bool // the writer of a step removes other uploads of it, however young
	sweepYoung    bool // retention removes other uploads, however young
	forgetRefs    bool // retention does not read the records of uploads on their way
	trustListing  bool // restore takes its first listing for what is there
}
