package yamledit

import "bytes"

// mark is the UTF-8 byte order mark.
var mark = []byte("\xef\xbb\xbf")

// Split cuts a file into documents. Their concatenated texts are the file.
func Split(file []byte) []*Document {
	var docs []*Document
	start, line := 0, 1 // of the document
	at, content := 0, false
	for n := 1; at < len(file); n++ {
		end := bytes.IndexByte(file[at:], '\n') + at + 1
		if end == at {
			end = len(file)
		}
		text := file[at:end]
		if at == 0 {
			text = bytes.TrimPrefix(text, mark)
		}
		switch {
		case separator(text, "---"):
			// Comments and directives before the first document belong to it.
			if content {
				docs = append(docs, &Document{Text: file[start:at:at], Line: line})
				start, line = at, n
			}
			content = true
		case len(bytes.TrimRight(text, " \t\r\n")) > 0 && text[0] != '#' && text[0] != '%':
			content = true
		}
		at = end
	}
	return append(docs, &Document{Text: file[start:], Line: line})
}

// separator reports whether a line is --- or ..., with or without text after it.
func separator(line []byte, what string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(what))
	return ok && (len(rest) == 0 || bytes.IndexByte([]byte(" \t\r\n"), rest[0]) >= 0)
}
