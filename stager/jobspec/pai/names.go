package pai

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Room in a name. Pods add their index and five random characters to that of their
// Job, a JobSet puts its roles and 0, the number of the Job in the role, between.
const (
	labelMax   = 63
	podSuffix  = len("-xxxxx")
	roleMax    = 24
	hashLength = 6
)

// dnsName makes a name one that objects, host names and services may have: RFC 1123,
// and a letter in front. One that had to be changed ends in a hash, so that two names
// stay two.
func dnsName(name string, most int) string {
	dns := strings.Map(func(r rune) rune {
		if r == '.' || r == '_' || r == '~' {
			return '-'
		}
		return r
	}, strings.ToLower(name))
	dns = strings.Trim(dns, "-")
	if dns == "" || dns[0] < 'a' {
		dns = strings.Trim("j-"+dns, "-")
	}
	if dns == name && len(dns) <= most {
		return dns
	}
	sum := sha256.Sum256([]byte(name))
	dns = dns[:min(len(dns), most-hashLength-1)]
	return strings.TrimRight(dns, "-") + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// names are those of the objects.
type names struct {
	job   string
	roles map[string]string
}

func (j *job) names(set bool) names {
	n := names{roles: map[string]string{}}
	longest := 0 // behind the job's name
	for _, t := range j.roles {
		n.roles[t.name] = dnsName(t.name, roleMax)
		behind := len("-" + strconv.Itoa(t.tasks-1))
		if set {
			behind += len("-" + n.roles[t.name] + "-0")
		}
		longest = max(longest, behind)
	}
	n.job = dnsName(j.name, labelMax-podSuffix-longest)
	return n
}
