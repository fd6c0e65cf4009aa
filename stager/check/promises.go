package check

// Areas of promises, as grouped in the report.
const (
	listing  = "Names and listings"
	reading  = "Reading"
	versions = "Objects that change"
	writing  = "Writing"
	winning  = "Replacing, and one winner"
	trouble  = "Calls that end early, and trouble on the way"
)

// Areas lists the areas in the order of the report.
var Areas = []string{listing, reading, versions, writing, winning, trouble}

// Promises that are tested while measuring.
const (
	fullSpeed     = "at full speed bytes come back as they were written"
	fullSpeedRead = "at full speed reads succeed"
)

// Advice that applies to several promises.
const (
	useNothing = "Use nothing of this store until the cause is found: look for a proxy, cache or gateway on the way that changes bytes, then for the storage itself."
	straight   = "Talk to the store itself, not to a cache, replica or gateway before it; if that is what this is, its makers want to know."
	byHand     = "Make each dataset under a name of its own and never write into one that a job may be reading."
	ownPlace   = "Give each job a destination of its own ({job} and {attempt} in the plan's URL), so that no two write one key."
	fewer      = "Try again with fewer --connections; if that helps, say so in plans too (limits: {connections: N})."
	report     = "This is a fault of the server or of stager: report it with this page."
)

// Texts used instead if the store became unreachable during the check.
const (
	goneMeans = "The store went away during the check, so this may say nothing about the promise."
	goneDo    = "See to the store, and check again."
)

// promises gives, for each sentence of the contract, its area, the consequence if it does not hold,
// and what to do.
var promises = map[string]struct{ area, means, do string }{
	"the facts about the store make sense": {listing, "stager cannot plan its requests to this store.", report},
	"a missing key is not there": {
		listing, "What is missing looks as though it were there, or as another error: prefetch tries again for nothing, restore may not find the newest checkpoint.", straight,
	},
	"odd names come back as they were given": {
		listing, "Files with such names come under other names, or are lost: prefetch and push of a dataset that has them is not whole.",
		"Keep datasets and checkpoints to letters, digits, dots, dashes and underscores.",
	},
	"a listing ascends and ends at its prefix": {
		listing, "Prefetch and window may miss files of a dataset, or take those of another.", straight,
	},
	"a long listing is whole": {
		listing, "Of a directory with more objects than one page holds, prefetch and window miss some.", straight,
	},
	"a listing can be left in the middle": {
		listing, "Connections are lost with each listing that is not read to its end: restore and long-running windows come to a stand.", report,
	},
	"a listing reports what is removed under way": {
		listing, "A prefetch of a source from which something is removed meanwhile ends as complete with less than there was when it began.", report,
	},
	"stat tells what the listing told": {
		listing, "An object looks changed between listing and reading: prefetch and window end with code 75, although nothing changed.", straight,
	},
	"a name stands for an object or a directory": {
		listing, "A URL of one file is not found, or one of a directory is taken for a file.", "Name directories with a \"/\" at the end.",
	},
	"objects of all sizes come back as they were written": {
		reading, "Data arrives damaged: prefetch and window find it and end with code 76, where a checksum is told; where none is, nobody finds it.", useNothing,
	},
	"a range is what was asked for": {
		reading, "Large files, which are read in ranges, arrive damaged.", useNothing,
	},
	"a range that does not fit is an error": {
		reading, "A file that shrinks under way may arrive short without an error.", straight,
	},
	"a stream can be read in bits and left early": {
		reading, "Connections are lost with each read that is given up: long-running windows come to a stand.", report,
	},
	"bytes have the checksum that the store tells": {
		reading, "What is stored is damaged, or its checksum is: prefetch and window end with code 76 at these objects.", "Write these objects again from their source.",
	},
	fullSpeed: {
		reading, "Under load requests fail or bytes are wrong: prefetch and window are slow, or end with code 69 or 76.", fewer,
	},
	fullSpeedRead: {
		reading, "Under load requests fail: prefetch and window are slow, or end with code 69.", fewer,
	},
	"a version that is gone is refused": {
		versions, "A file that is overwritten while a job reads it may arrive as a mixture of old and new bytes.", byHand,
	},
	"a change between two ranges is noticed": {
		versions, "A large file that is overwritten while it is fetched arrives as a mixture of old and new bytes.", byHand,
	},
	"a change under way mixes no versions": {
		versions, "A file that is overwritten while it is fetched may arrive as a mixture of old and new bytes.", byHand,
	},
	"a write answers what stat tells later": {
		writing, "What was just written looks changed: push, checkpoint uploads and retention may doubt their own files.", straight,
	},
	"nothing is seen before its commit": {
		writing, "Others may read a file that is only half written, such as a checkpoint on its way.", "Read only committed checkpoints (stager restore), never files as they appear.",
	},
	"an aborted write leaves nothing": {
		writing, "Uploads that are broken off leave files or parts, which cost space and may be taken for data.",
		"Let the store remove unfinished uploads by itself (on S3 and OSS a lifecycle rule).",
	},
	"a write of another size than announced fails": {
		writing, "A file that changes while it is sent is stored short or long.", "Commit checkpoints by rename or marker, so that only finished files are sent.",
	},
	"parts may come in any order, and twice": {
		writing, "Large checkpoints, which are sent in parts, may be damaged after a retry.", useNothing,
	},
	"a delete removes one key, and may be repeated": {
		writing, "Retention of checkpoints fails, or removes more than it should.", "Keep every checkpoint (keep: {last: 0}) and remove old ones by hand.",
	},
	"a commit replaces what was there": {
		winning, "Overwriting fails: push of a changed directory, mirrored outputs and LATEST stay behind.", "Push to a new directory each time.",
	},
	"readers see the old object or the new one": {
		winning, "While a file is replaced, a reader may find none, or a mixture: mirrored outputs and overwritten datasets are at risk, committed checkpoints are not.", byHand,
	},
	"a key that is taken is kept, if asked": {
		winning, "A second job that saves the same step replaces the first one's COMMIT.", ownPlace,
	},
	"of eight writers of a free key one wins": {
		winning, "Two jobs that save the same step at the same moment may both believe that theirs counts.", ownPlace,
	},
	"a commit replaces only the version that it names": {
		winning, "A job that saves a step anew may replace the COMMIT of another job that it never saw.", ownPlace,
	},
	"of eight writers that replace one version one wins": {
		winning, "Two jobs that save the same step anew at the same moment may both believe that theirs counts.", ownPlace,
	},
	"of several writers that replace one version one wins, each round": {
		winning, "Two jobs that save the same step anew at the same moment may both believe that theirs counts.", ownPlace,
	},
	"a replacement leaves nothing behind": {
		winning, "Saving a step anew fails, or leaves files that cost space.", "Remove them with stager prune.",
	},
	"claims are hidden and can be swept": {
		winning, "What a killed job left while it saved a step anew holds up others, or is taken for data.", report,
	},
	"a call that is cancelled before does nothing": {
		trouble, "stager may write after it was told to end.", report,
	},
	"a read can be cancelled": {
		trouble, "SIGTERM is heard late: a pod may be killed before its checkpoint is saved.", "Give the end more time (terminationGracePeriodSeconds).",
	},
	"a write can be cancelled": {
		trouble, "SIGTERM is heard late, or what was given up appears after all.", "Give the end more time (terminationGracePeriodSeconds).",
	},
	"many at once do not disturb each other": {
		trouble, "Under parallel load files are lost, mixed up or refused: prefetch and window cannot be trusted at full speed.", "Try again with --connections 1; if that holds, say so in plans (limits: {connections: 1}) and ask the server's makers.",
	},
	"broken streams are resumed": {
		trouble, "A connection that breaks ends a prefetch instead of going on.", report,
	},
	"failed writes are repeated": {
		trouble, "A request that fails once ends an upload instead of being repeated.", report,
	},
}
