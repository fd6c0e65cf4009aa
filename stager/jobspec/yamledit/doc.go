// Package yamledit edits YAML and JSON files in place. All bytes that an edit does not concern stay
// as they are: comments, order, quoting, line endings.
//
// [Split] cuts a file into documents. [Parse] builds a tree in which each [Node] has the offsets of
// its text; a [Reader] parses many documents into the same memory. An [Editor] collects changes to
// the tree and applies them to the text. An Editor can reverse each change exactly.
//
//	d := yamledit.Split(file)[0]
//	if err := yamledit.Parse(d); err != nil {
//		return err
//	}
//	e := yamledit.NewEditor(d)
//	e.Insert(d.Root, d.Root.Len()-1, yamledit.Map{{Key: "kind", Value: "Job"}})
//	text := e.Text()
//
// The package reads what people and programs write into manifests: block and flow style, every kind
// of scalar, anchors, aliases, tags, comments, CRLF, a byte order mark. It refuses what is valid
// YAML but absent from manifests: keys that are not scalars, and pairs without braces in flow
// sequences. The [SyntaxError] names the construct.
package yamledit
