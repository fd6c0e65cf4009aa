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
	fullSpeed     = "at full speed bytes round-trip"
	fullSpeedRead = "at full speed reads succeed"
)

// Advice that applies to several promises.
const (
	useNothing = "Do not use this store until the cause is found: check for a proxy, cache or gateway that changes bytes, then check the storage itself."
	straight   = "Connect to the store itself, not to a cache, replica or gateway; if this is the store itself, report it to its vendor."
	byHand     = "Use a new name for each dataset and never write into one that a job may be reading."
	ownPlace   = "Give each job a destination of its own ({job} and {attempt} in the plan's URL), so that no two write one key."
	fewer      = "Try again with fewer --connections; if that helps, set the same in plans (limits: {connections: N})."
	report     = "This is a fault of the server or of stager: report it with this page."
)

// Texts used instead if the store became unreachable during the check.
const (
	goneMeans = "The store became unreachable during the check, so this result may be meaningless."
	goneDo    = "Repair the store, and check again."
)

// promises gives, for each sentence of the contract, its area, the consequence if it does not hold,
// and what to do.
var promises = map[string]struct{ area, means, do string }{
	"the capabilities of the store are consistent": {listing, "stager cannot plan its requests to this store.", report},
	"a missing key is reported as missing": {
		listing, "A missing object looks present, or like another error: prefetch retries without success, restore may not find the newest checkpoint.", straight,
	},
	"unusual names round-trip": {
		listing, "Files with such names are renamed or lost: prefetch and push of a dataset that has them are incomplete.",
		"Keep datasets and checkpoints to letters, digits, dots, dashes and underscores.",
	},
	"a listing ascends and ends at its prefix": {
		listing, "Prefetch and window may miss files of a dataset, or include those of another.", straight,
	},
	"a long listing is complete": {
		listing, "Prefetch and window miss objects of a directory that needs more than one page.", straight,
	},
	"a listing can be left in the middle": {
		listing, "Connections are lost with each listing that is not read to its end: restore and long-running windows stall.", report,
	},
	"a listing reports what is removed under way": {
		listing, "A prefetch whose source loses objects meanwhile reports success without them.", report,
	},
	"stat returns what the listing returned": {
		listing, "An object looks changed between listing and reading: prefetch and window end with code 75, although nothing changed.", straight,
	},
	"a name stands for an object or a directory": {
		listing, "The URL of a file is not found, or that of a directory is mistaken for a file.", "Name directories with a \"/\" at the end.",
	},
	"objects of all sizes round-trip": {
		reading, "Data arrives damaged: prefetch and window find it and end with code 76 if the store has checksums; otherwise it is not detected.", useNothing,
	},
	"a range returns the requested bytes": {
		reading, "Large files, which are read in ranges, arrive damaged.", useNothing,
	},
	"a range outside the object is an error": {
		reading, "A file that shrinks during the read may be truncated without an error.", straight,
	},
	"a stream can be read in bits and left early": {
		reading, "Connections are lost with each canceled read: long-running windows stall.", report,
	},
	"bytes match the checksum of the store": {
		reading, "What is stored is damaged, or its checksum is: prefetch and window end with code 76 at these objects.", "Write these objects again from their source.",
	},
	fullSpeed: {
		reading, "Under load requests fail or bytes are wrong: prefetch and window are slow, or end with code 69 or 76.", fewer,
	},
	fullSpeedRead: {
		reading, "Under load requests fail: prefetch and window are slow, or end with code 69.", fewer,
	},
	"a version that was replaced is rejected": {
		versions, "A file that is overwritten while a job reads it may arrive as a mixture of old and new bytes.", byHand,
	},
	"a change between two ranges is detected": {
		versions, "A large file that is overwritten while it is fetched arrives as a mixture of old and new bytes.", byHand,
	},
	"a change under way mixes no versions": {
		versions, "A file that is overwritten while it is fetched may arrive as a mixture of old and new bytes.", byHand,
	},
	"a change does not wait for readers": {
		versions, "Replacing or removing a large file waits until all who read it are done, or ends with code 69: mirrored outputs and pruning of checkpoints that are being restored.", byHand,
	},
	"a write returns what stat returns later": {
		writing, "What was just written looks changed: push, checkpoint uploads and retention may doubt their own files.", straight,
	},
	"nothing is seen before its commit": {
		writing, "Others may read a partial file, such as a checkpoint during its upload.", "Read only committed checkpoints (stager restore), never files as they appear.",
	},
	"an aborted write leaves nothing": {
		writing, "Aborted uploads leave files or parts, which use space and may be mistaken for data.",
		"Let the store remove incomplete uploads (on S3 and OSS with a lifecycle rule).",
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
	"an existing key is kept, if requested": {
		winning, "A second job that saves the same step replaces the first one's COMMIT.", ownPlace,
	},
	"of eight writers of a free key one wins": {
		winning, "Two jobs that save the same step at the same moment may both believe that theirs counts.", ownPlace,
	},
	"a commit replaces only the version that it names": {
		winning, "A job that saves a step again may replace the COMMIT of another job that it has not seen.", ownPlace,
	},
	"of eight writers that replace one version one wins": {
		winning, "Two jobs that save the same step again at the same time may both report success.", ownPlace,
	},
	"of several writers that replace one version one wins, each round": {
		winning, "Two jobs that save the same step again at the same time may both report success.", ownPlace,
	},
	"a replacement leaves nothing behind": {
		winning, "Saving a step again fails, or leaves files that use space.", "Remove them with stager prune.",
	},
	"claims are hidden and can be swept": {
		winning, "Files of a job that was killed while it saved a step again block others, or are mistaken for data.", report,
	},
	"a canceled call does nothing": {
		trouble, "stager may write after it was stopped.", report,
	},
	"a read can be cancelled": {
		trouble, "SIGTERM is handled late: a pod may be killed before its checkpoint is saved.", "Increase terminationGracePeriodSeconds.",
	},
	"a write can be cancelled": {
		trouble, "SIGTERM is handled late, or canceled writes appear later.", "Increase terminationGracePeriodSeconds.",
	},
	"many at once do not disturb each other": {
		trouble, "Under parallel load files are lost, mixed up or refused: prefetch and window cannot be trusted at full speed.", "Try again with --connections 1; if that holds, set the same in plans (limits: {connections: 1}) and report it to the server's vendor.",
	},
	"broken streams are resumed": {
		trouble, "A connection that breaks ends a prefetch instead of going on.", report,
	},
	"failed writes are repeated": {
		trouble, "A request that fails once ends an upload instead of being repeated.", report,
	},
}
