package admission

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/stager-dev/stager/stager/admission/kube"
)

// labelEnforce is the label of a namespace with the level of Pod Security that it enforces.
const labelEnforce = "pod-security.kubernetes.io/enforce"

// Levels reads the levels of Pod Security that namespaces enforce. Each is kept for ten
// seconds. It may be used by several goroutines.
type Levels struct {
	API *kube.Client

	mu    sync.Mutex // guards known
	known map[string]levelFound
}

type levelFound struct {
	level string
	until time.Time
}

// Find returns the level that a namespace enforces; "" when its labels do not say.
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
