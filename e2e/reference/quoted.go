package reference

import (
	"maps"
	"slices"
	"strings"
)

// Messages returns the messages that the module in source logs at warn and error, sorted. Parts that
// vary are "…".
func Messages(source string) ([]string, error) {
	found, err := readLogs(source)
	if err != nil {
		return nil, err
	}
	delete(found, sentences)
	return slices.Sorted(maps.Keys(found)), nil
}

// Quote returns what a test must contain to have seen a message of messages: its text up to the first
// punctuation or varying part where no other message begins so, the whole text otherwise.
func Quote(message string, messages []string) string {
	text, _, _ := strings.Cut(message, "…")
	head := text
	if i := strings.IndexAny(text, ",:;"); i > 0 {
		head = text[:i]
	}
	for _, other := range messages {
		if other != message && strings.Contains(other, head) {
			return text
		}
	}
	return head
}
