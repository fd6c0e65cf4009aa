package checkpoint

// weaken disables single protections against concurrent processes. Only tests set it, to show
// that the exploration of interleavings detects what each protection prevents. In the product all
// fields are false.
var weaken struct {
	unconditional bool // replace COMMIT.json whatever its current content
	lookOnce      bool // do not check the data again after COMMIT
	tidyYoung     bool // the writer of a step removes other uploads of it, however young
	sweepYoung    bool // retention removes other uploads, however young
	forgetRefs    bool // retention does not read the records of uploads in progress
	trustListing  bool // restore trusts its first listing
	cleanSaved    bool // the cleanup does not spare what this process is saving
	cleanHeld     bool // the cleanup takes uploads that may still be committed for over
	unlocked      bool // the cleanup and the sender change a COMMIT at the same time
}
