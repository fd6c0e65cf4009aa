package group

import (
	"errors"
	"testing"
)

func TestDecodeIgnoresUnknownFieldsAndRefusesUnknownFeatures(t *testing.T) {
	known := `{"apiVersion":"stager.dev/v1alpha1","kind":"Member","job":"j","index":0,"count":2,"boot":"b","beat":1,"later":[1]`
	if m, err := DecodeMember([]byte(known + "}")); err != nil || m.Boot != "b" {
		t.Errorf("a record with an unknown field: got %+v, %v, want boot b", m, err)
	}
	if _, err := DecodeMember([]byte(known + `,"requires":["x"]}`)); !errors.Is(err, ErrUnsupported) {
		t.Errorf("a record that requires x: got %v, want ErrUnsupported", err)
	}
	for _, bad := range []string{"", "{}", known, `{"apiVersion":"stager.dev/v1alpha1","kind":"Member","job":"j","index":2,"count":2,"boot":"b"}`} {
		if _, err := DecodeMember([]byte(bad)); err == nil {
			t.Errorf("%q: got no error, want one", bad)
		}
	}
}

func TestParsePartKeyReadsWhatPartKeyWrote(t *testing.T) {
	id := SaveID{digestOf("j", []string{"a"}), 7}
	rest := PartKey(5, id, 3)[len(StepDir(5, 0))+1:]
	if got, index, ok := ParsePartKey(rest); !ok || got != id || index != 3 {
		t.Errorf("%s: got %v %d %v, want %v 3 true", rest, got, index, ok, id)
	}
	if _, _, ok := ParsePartKey("parts/node-003.json"); ok {
		t.Error("parts/node-003.json: got a part of a save, want none")
	}
}

func TestParseRecordKeyReadsWhatMembersWrite(t *testing.T) {
	view := digestOf("j", []string{"a"})
	member := encode(Member{Header: Header{APIVersion: apiVersion, Kind: kindMember}, Job: "j", Index: 3, Count: 4, Boot: "b"})
	for key, want := range map[string]RecordKey{
		memberKey(3):         {Number: 3},
		announceKey(view, 7): {View: view, Number: 7},
		agreementKey("j", 2): {Job: jobDigest("j"), Number: 2},
		followerKey("j", 5):  {Job: jobDigest("j"), Number: 5},
	} {
		want.Key = key
		if got, ok := ParseRecordKey(key); !ok || got != want {
			t.Errorf("%s: got %+v, %v, want %+v", key, got, ok, want)
		}
		if err := want.Check(member); (err == nil) != (key == memberKey(3)) {
			t.Errorf("%s with the record of member 3: got %v", key, err)
		}
	}
	for _, key := range []string{
		ViewKey, "nodes/members/3.json", "nodes/members/000003.json/x", "nodes/views/x/00000001.json", "nodes/views/" + view + "/000001.json",
		"nodes/restores/" + view + "/-00001.json", "nodes/followers/" + view + "/0000001.json", "nodes/restores/x/000001.json", "nodes/", "members/000003.json",
	} {
		if got, ok := ParseRecordKey(key); ok {
			t.Errorf("%s: got %+v, want no record", key, got)
		}
	}
}

func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"stager.dev/v1alpha1","kind":"View","seq":1,"job":"j","count":1,"view":"x","boots":["b"]}`))
	f.Add([]byte(`{"apiVersion":"stager.dev/v1alpha1","kind":"Part","view":"x","save":1,"index":0,"count":1,"boot":"b","payload":{}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		if m, err := DecodeMember(body); err == nil && (m.Index < 0 || m.Index >= m.Count) {
			t.Errorf("%q: got index %d of %d", body, m.Index, m.Count)
		}
		if v, err := DecodeView(body); err == nil && (len(v.Boots) != v.Count || v.Digest != digestOf(v.Job, v.Boots)) {
			t.Errorf("%q: got a view that does not fit its members", body)
		}
		if p, err := DecodePart(body); err == nil && (p.Save < 1 || p.Index >= p.Count) {
			t.Errorf("%q: got part %d of %d of save %d", body, p.Index, p.Count, p.Save)
		}
		if a, err := DecodeAgreement(body); err == nil && a.Step < Nothing {
			t.Errorf("%q: got step %d", body, a.Step)
		}
		if r, err := DecodeFollower(body); err == nil && (r.Done < 0 || r.Follows < r.Done) {
			t.Errorf("%q: got a node that has restored %d and follows %d", body, r.Done, r.Follows)
		}
		_, _ = DecodeAnnouncement(body)
		_, _ = DecodeJoined(body)
	})
}
