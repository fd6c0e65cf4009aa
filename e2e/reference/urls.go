package reference

import (
	"fmt"
	"strings"
)

// Scheme describes the URLs of a protocol.
type Scheme struct {
	Name, Summary, Example, Credentials string
	Params                              []struct{ Name, Summary, Default string }
	Lists                               bool // its buckets
	Server                              bool // URLs begin with a server
}

const urlsIntro = `# URLs and their options

A URL names an object or a directory in a store; a directory ends with ` + "`/`" + `. Options follow the path, as in
` + "`s3://bucket/train/?region=eu-central-1&list=directories`" + `, and must be quoted in a shell. An unknown option is refused, and the error lists those that the scheme has.
Characters that have a meaning in URLs are written as ` + "`%25` for `%`, `%3F` for `?` and `%23` for `#`" + `. On the command line, a location without ` + "`://`" + ` is a local path.

URLs never contain passwords or keys. The sentence about credentials at each scheme is the short form of
[Set credentials](../guides/credentials.md), which also says in which order they are searched.

| scheme | store |
|---|---|
`

// urlsPage returns the page of the schemes and their parameters.
func urlsPage(schemes []Scheme) string {
	var b strings.Builder
	b.WriteString(generated + urlsIntro)
	for _, s := range schemes {
		fmt.Fprintf(&b, "| [`%s://`](#%s) | %s |\n", s.Name, strings.ReplaceAll(s.Name, "+", ""), markdown(s.Summary))
	}
	for _, s := range schemes {
		fmt.Fprintf(&b, "\n## %s\n\n%s.\n\n```text\n%s\n```\n\n%s\n", s.Name, markdown(strings.ToUpper(s.Summary[:1])+s.Summary[1:]), s.Example, markdown(s.Credentials))
		if s.Lists {
			fmt.Fprintf(&b, "\nA URL without %s lists them: `stager ls %s`.\n", containers(s), withoutBucket(s))
		}
		if len(s.Params) == 0 {
			b.WriteString("\nIt has no options.\n")
			continue
		}
		b.WriteString("\n| option | default | meaning |\n|---|---|---|\n")
		for _, p := range s.Params {
			fmt.Fprintf(&b, "| `%s` | %s | %s |\n", p.Name, markdown(p.Default), markdown(p.Summary))
		}
	}
	return b.String()
}

// containers returns what the first part of the path of a scheme is called.
func containers(s Scheme) string {
	if s.Server {
		return "a share"
	}
	if strings.Contains(s.Example, "container") {
		return "a container"
	}
	return "a bucket"
}

// withoutBucket returns the example of a scheme, cut before its bucket and its options.
func withoutBucket(s Scheme) string {
	if s.Server {
		_, rest, _ := strings.Cut(s.Example, "://")
		server, _, _ := strings.Cut(rest, "/")
		return s.Name + "://" + server + "/"
	}
	_, options, found := strings.Cut(s.Example, "?")
	if found {
		return "'" + s.Name + "://?" + options + "'"
	}
	return s.Name + "://"
}
