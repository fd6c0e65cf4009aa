package group

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// Agreement is nodes/restores/<job>/<number>.json: the checkpoint that all nodes of a job
// restore. It is created once. The agreement with the highest number is valid.
type Agreement struct {
	Header
	Job    string `json:"job"`
	Number int    `json:"number"` // from 1
	// Base is the first agreement of a sequence on the same checkpoint. Each later one was made
	// because a node restored again before the job was known to have run.
	Base   int      `json:"base"`
	Count  int      `json:"count"`            // number of nodes, as counted by the writer
	Step   int64    `json:"step"`             // [Nothing]: start without a checkpoint
	Dir    string   `json:"dir,omitempty"`    // of the step, below the destination
	Digest string   `json:"digest,omitempty"` // of the contents of its COMMIT.json
	Cause  Cause    `json:"cause"`
	By     int      `json:"by"`            // the node that made it
	Bad    []string `json:"bad,omitempty"` // digests of checkpoints that a node could not restore
	// Over is the first of the agreements that this one replaces although nodes may have restored
	// them and still wait with them; 0: none.
	Over int `json:"over,omitempty"`
}

// Nothing is the Step of an Agreement to start without a checkpoint.
const Nothing = -1

// Cause is why an agreement was made.
type Cause string

// The causes.
const (
	CauseFirst Cause = "first" // the job has restored nothing so far
	CauseRan   Cause = "ran"   // the job saved a checkpoint since the previous agreement
	CauseAgain Cause = "again" // a node restores again, and the job is not known to have run
	CauseBad   Cause = "bad"   // the checkpoint of the previous agreement is damaged or missing
	CauseHand  Cause = "hand"  // the user chose the step
)

// Follower is nodes/followers/<job>/<index>.json: what a node of a job restores. It is replaced
// by compare-and-swap.
type Follower struct {
	Header
	Job     string `json:"job"`
	Index   int    `json:"index"`
	Follows int    `json:"follows"`       // the number of the last agreement that it began to restore
	Done    int    `json:"done"`          // the number of the last agreement that it has restored; 0: none
	Pod     string `json:"pod,omitempty"` // the pod that wrote this
}

const (
	kindAgreement = "RestoreAgreement"
	kindFollower  = "RestoreFollower"
	maxBad        = 1024
)

func (a *Agreement) check() error {
	if err := a.Header.check(kindAgreement); err != nil {
		return err
	}
	if err := checkIdentity(a.Job, "any", a.By, a.Count); err != nil {
		return err
	}
	if a.Number < 1 || a.Base < 1 || a.Base > a.Number || a.Over < 0 || a.Over > a.Number || a.Step < Nothing || len(a.Bad) > maxBad {
		return fmt.Errorf("agreement %d (base %d, over %d) on step %d is not valid", a.Number, a.Base, a.Over, a.Step)
	}
	if (a.Step == Nothing) != (a.Dir == "") || (a.Step == Nothing) != (a.Digest == "") {
		return fmt.Errorf("step %d with the digest %q in directory %q is not valid", a.Step, a.Digest, a.Dir)
	}
	return nil
}

func (f *Follower) check() error {
	if err := f.Header.check(kindFollower); err != nil {
		return err
	}
	if f.Done < 0 || f.Follows < f.Done {
		return fmt.Errorf("a node that follows agreement %d and has restored %d is not valid", f.Follows, f.Done)
	}
	return checkIdentity(f.Job, "any", f.Index, maxCount)
}

// DecodeAgreement decodes an agreement.
func DecodeAgreement(body []byte) (Agreement, error) { return decode[Agreement](body) }

// DecodeFollower decodes what a node restores.
func DecodeFollower(body []byte) (Follower, error) { return decode[Follower](body) }

// Keys at the destination.
const (
	// RestoresPrefix is the prefix of agreements.
	RestoresPrefix = "nodes/restores/"
	// FollowersPrefix is the prefix of the records of nodes that follow them.
	FollowersPrefix = "nodes/followers/"
)

// jobDigest returns the name of a job in keys.
func jobDigest(job string) string {
	sum := sha256.Sum256([]byte(job))
	return hex.EncodeToString(sum[:16])
}

// AgreementsPrefix returns the prefix of the agreements of a job.
func AgreementsPrefix(job string) string { return RestoresPrefix + jobDigest(job) + "/" }

func agreementKey(job string, number int) string {
	return fmt.Sprintf("%s%06d%s", AgreementsPrefix(job), number, ending)
}

func followersPrefix(job string) string { return FollowersPrefix + jobDigest(job) + "/" }

func followerKey(job string, index int) string {
	return fmt.Sprintf("%s%06d%s", followersPrefix(job), index, ending)
}

// AgreementNumber returns the number of an agreement of a job by its key, or 0 if it is none.
func AgreementNumber(job, key string) int {
	k, ok := ParseRecordKey(key)
	if !ok || key != agreementKey(job, k.Number) {
		return 0
	}
	return k.Number
}
