// Package yamledit changes YAML and JSON files and leaves every byte that it was not
// asked to change: comments, order, quoting, line ends.
//
// [Split] cuts a file into documents, [Parse] makes a tree of one in which each
// [Node] knows where its text begins and ends (a [Reader] does so for many), and an [Editor] collects changes to
// that tree and writes them into the text. What an Editor put in, an Editor takes out
// again to the byte.
//
// It reads what people and programs write into manifests: block and flow style,
// every kind of scalar, anchors, aliases, tags, comments, CRLF, a byte order mark.
// It refuses, with a [SyntaxError] that says so, what manifests do not have and
// YAML does: keys that are no scalars, and pairs without braces in flow lists.
package yamledit
