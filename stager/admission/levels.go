package admission

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// labelEnforce is the namespace label with the enforced Pod Security level.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// Levels reads the Pod Security levels that namespaces enforce and caches each for ten seconds. It
// is safe for concurrent use.
type Levels struct {
	API *kube.Client

	mu    sync.Mutex // guards known
	known map[string]levelFound
}

type levelFound struct {
	level string
	until time.Time
}

// Find returns the level that a namespace enforces, or "" if its labels set none.
func (l *Levels) Find(namespace string) (level string, err error) {
	l.mu.Lock()
	found, ok := l.known[namespace]
	l.mu.Unlock()
	if ok && time.Now().Before(found.until) {
		return found.level, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), ownerTimeout)
	defer cancel()
	var object struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
	}
	if err := l.API.Get(ctx, "/api/v1/namespaces/"+url.PathEscape(namespace), &object); err != nil {
		return "", fmt.Errorf("the namespace %s cannot be read: %w", namespace, err)
	}
	level = object.Metadata.Labels[labelEnforce]
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.known == nil || len(l.known) >= ownersKept {
		l.known = make(map[string]levelFound)
	}
	l.known[namespace] = levelFound{level, time.Now().Add(ownerKept)}
	return level, nil
}
