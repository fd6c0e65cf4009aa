package group

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Sweepable reports whether data may be removed that a part of the view names, but no COMMIT. It
// may not while the view is current. still is how long, on the sweeper's own clock, the view has
// not been current and the parts of the save have not changed. abandon must exceed the duration
// of any upload and Config.Patience.
func Sweepable(current View, view string, still, abandon time.Duration) bool {
	return current.Digest != view && still >= abandon
}

// RecordsPrefix is the prefix of all records that belong to no step.
const RecordsPrefix = "nodes/"

// RecordKey is a parsed key below RecordsPrefix.
type RecordKey struct {
	Key    string
	View   string // of an announcement
	Job    string // digest of the job of an agreement or a follower
	Number int    // the index of a member or a follower, the number of a save or an agreement
}

// ParseRecordKey parses the key of a member, an announcement, an agreement or a follower. ok is
// false for any other key, even if it is similar to one that a machine writes.
func ParseRecordKey(key string) (k RecordKey, ok bool) {
	k.Key = key
	switch dir, name, _ := strings.Cut(strings.TrimPrefix(key, RecordsPrefix), "/"); dir + "/" {
	case strings.TrimPrefix(MembersPrefix, RecordsPrefix):
		k.Number, ok = numberOf(name)
		return k, ok && key == memberKey(k.Number)
	case strings.TrimPrefix(ViewsPrefix, RecordsPrefix):
		k.View, name, _ = strings.Cut(name, "/")
		k.Number, ok = numberOf(name)
		return k, ok && viewDigest.MatchString(k.View) && key == announceKey(k.View, k.Number)
	case strings.TrimPrefix(RestoresPrefix, RecordsPrefix), strings.TrimPrefix(FollowersPrefix, RecordsPrefix):
		k.Job, name, _ = strings.Cut(name, "/")
		k.Number, ok = numberOf(name)
		return k, ok && viewDigest.MatchString(k.Job) && key == fmt.Sprintf("%s%s/%s/%06d%s", RecordsPrefix, dir, k.Job, k.Number, ending)
	}
	return k, false
}

// Of returns the view or the job to which a record belongs, or "" for neither. Another record
// with the same result shows that the view or job is in use.
func (k RecordKey) Of() string { return k.View + k.Job }

// IsAgreement reports whether a record is an agreement. Only the last agreement of a job is
// valid.
func (k RecordKey) IsAgreement() bool { return strings.HasPrefix(k.Key, RestoresPrefix) }

// Of returns the view and the job of a COMMIT.json, as [RecordKey.Of] returns them for records.
func (j *Joined) Of() (view, job string) { return j.View, jobDigest(j.Job) }

func numberOf(name string) (int, bool) {
	text, ok := strings.CutSuffix(name, ending)
	n, err := strconv.Atoi(text)
	return n, ok && err == nil && n >= 0
}

// Needs reports whether a record may still matter to the members of v, the current view: a member
// at one of its indices, a record of v or of one of its former views, or a record of what their
// job restores.
func (v *View) Needs(k RecordKey) bool {
	switch {
	case k.Job != "":
		return k.Job == jobDigest(v.Job)
	case k.View == "":
		return k.Number < v.Count
	}
	return k.View == v.Digest || slices.Contains(v.Former, k.View)
}

// Check returns an error unless body is a record that a machine wrote under this key.
func (k RecordKey) Check(body []byte) error {
	var key string
	var err error
	switch {
	case strings.HasPrefix(k.Key, MembersPrefix):
		var m Member
		m, err = DecodeMember(body)
		key = memberKey(m.Index)
	case strings.HasPrefix(k.Key, ViewsPrefix):
		var a Announcement
		a, err = DecodeAnnouncement(body)
		key = announceKey(a.View, a.Save)
	case strings.HasPrefix(k.Key, FollowersPrefix):
		var f Follower
		f, err = DecodeFollower(body)
		key = followerKey(f.Job, f.Index)
	default:
		var a Agreement
		a, err = DecodeAgreement(body)
		key = agreementKey(a.Job, a.Number)
	}
	if err == nil && key != k.Key {
		err = fmt.Errorf("it is the record of %s", key)
	}
	return err
}
