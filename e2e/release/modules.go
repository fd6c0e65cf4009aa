package release

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// module is a library in the binary, or the standard library of Go.
type module struct {
	Path, Version string
	Licenses      []license
}

// license is a file with the conditions or notices of a module.
type license struct {
	Name string // below the module, such as LICENSE
	Text []byte
	ID   string // of the SPDX list; "" for notices and patents
}

// licenseFile matches the names of files that a distributor must pass on.
var licenseFile = regexp.MustCompile(`(?i)^((un)?licen[sc]e|copying|notice|patents)([.-].*)?$`)

// licenseTexts identify licenses by sentences of theirs, the more special ones first.
var licenseTexts = []struct{ id, contains string }{
	{"LGPL-3.0-only", "gnu lesser general public license version 3"},
	{"MPL-2.0", "mozilla public license version 2.0"},
	{"MPL-2.0", "mozilla public license, version 2.0"},
	{"Apache-2.0", "apache license version 2.0"},
	{"Apache-2.0", "licensed under the apache license, version 2.0"},
	{"Unlicense", "this is free and unencumbered software released into the public domain"},
	{"ISC", "permission to use, copy, modify, and/or distribute this software for any purpose"},
	{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
	{"BSD-3-Clause", "endorse or promote products derived"},
	{"BSD-2-Clause", "redistribution and use in source and binary forms"},
}

// modules returns what is linked into the binaries, in the order of the paths.
func (r *release) modules(ctx context.Context) ([]module, error) {
	byPath := make(map[string]*module)
	for _, p := range r.Platforms {
		cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module", "./cmd/stager")
		cmd.Dir, cmd.Stderr, cmd.Env = r.Source, os.Stderr, goEnv(p)
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("listing packages: %w", err)
		}
		for dec := json.NewDecoder(bytes.NewReader(out)); ; {
			var pkg struct {
				Dir      string
				Standard bool
				Module   *struct {
					Path, Version, Dir string
					Main               bool
				}
			}
			if err := dec.Decode(&pkg); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, err
			}
			if pkg.Standard || pkg.Module.Main {
				continue
			}
			m := byPath[pkg.Module.Path]
			if m == nil {
				m = &module{Path: pkg.Module.Path, Version: pkg.Module.Version}
				byPath[m.Path] = m
			}
			if err := m.addLicenses(pkg.Dir, pkg.Module.Dir); err != nil {
				return nil, err
			}
		}
	}
	std, err := standardLibrary(ctx)
	if err != nil {
		return nil, err
	}
	all := []module{std}
	for _, m := range byPath {
		if !slices.ContainsFunc(m.Licenses, func(l license) bool { return l.ID != "" }) {
			return nil, fmt.Errorf("%s %s has no license that is known here: read it, and add it to licenseTexts", m.Path, m.Version)
		}
		all = append(all, *m)
	}
	slices.SortFunc(all, func(a, b module) int { return strings.Compare(a.Path, b.Path) })
	return all, nil
}

// standardLibrary returns the module std with Go's license.
func standardLibrary(ctx context.Context) (module, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOVERSION", "GOROOT").Output()
	if err != nil {
		return module{}, fmt.Errorf("asking go for its version: %w", err)
	}
	version, root, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := module{Path: "std", Version: strings.TrimPrefix(version, "go")}
	return m, m.addLicenses(root, root)
}

// addLicenses adds the files that stand in a package's directory and above it, up to that of the
// module.
func (m *module) addLicenses(dir, root string) error {
	for {
		found, err := os.ReadDir(dir)
		if err != nil {
			return err
		}
		for _, f := range found {
			name, err := filepath.Rel(root, filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			known := slices.ContainsFunc(m.Licenses, func(l license) bool { return l.Name == name })
			if known || !f.Type().IsRegular() || !licenseFile.MatchString(f.Name()) || filepath.Ext(name) == ".go" {
				continue
			}
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				return err
			}
			m.Licenses = append(m.Licenses, license{Name: name, Text: text, ID: licenseID(f.Name(), text)})
		}
		if dir == root {
			slices.SortFunc(m.Licenses, func(a, b license) int { return strings.Compare(a.Name, b.Name) })
			return nil
		}
		dir = filepath.Dir(dir)
	}
}

// licenseID returns the identifier of a license's text; "" for notices, and for unknown ones.
func licenseID(name string, text []byte) string {
	if lower := strings.ToLower(name); strings.HasPrefix(lower, "notice") || strings.HasPrefix(lower, "patents") {
		return ""
	}
	words := strings.ToLower(strings.Join(strings.Fields(string(text)), " "))
	for _, l := range licenseTexts {
		if strings.Contains(words, l.contains) {
			return l.id
		}
	}
	return ""
}

// notices returns the texts of all licenses, each once with the modules that have it.
func notices(all []module) []byte {
	type file struct {
		text []byte
		of   []string
	}
	var files []*file
	for _, m := range all {
		for _, l := range m.Licenses {
			i := slices.IndexFunc(files, func(f *file) bool { return bytes.Equal(f.text, l.Text) })
			if i < 0 {
				i = len(files)
				files = append(files, &file{text: l.Text})
			}
			files[i].of = append(files[i].of, fmt.Sprintf("%s %s, %s", m.Path, m.Version, l.Name))
		}
	}
	var b bytes.Buffer
	b.WriteString("stager is distributed under the Apache License 2.0, which is in the file LICENSE. It contains the following libraries.\n")
	for _, f := range files {
		fmt.Fprintf(&b, "\n%s\n%s\n\n%s\n", strings.Repeat("=", 78), strings.Join(f.of, "\n"), bytes.TrimSpace(f.text))
	}
	return b.Bytes()
}
