package pai

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Maximum lengths of names. A pod's name is the Job's name, the index and five random characters. A
// JobSet inserts the role and 0, the index of the Job in the role.
const (
	labelMax   = 63
	podSuffix  = len("-xxxxx")
	roleMax    = 24
	hashLength = 6
)

// dnsName converts a name to a DNS label (RFC 1123) that starts with a letter, for objects, hosts
// and services. A changed name ends in a hash, so that different names stay different.
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

// names are the names of the objects.
type names struct {
	job   string
	roles map[string]string
}

func (j *job) names(set bool) names {
	n := names{roles: map[string]string{}}
	longest := 0 // longest suffix after the job's name
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
