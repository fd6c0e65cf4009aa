package checkpoint

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stager-dev/stager/backends/mem"
)

// The status, the metrics and the upload take Uploader.mu. A scan held it while it read and linked
// files and asked the daemon for its inputs, so on a file system that hung nobody answered.
func TestUploaderAsksOthersWithoutItsMutex(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		var u *Uploader
		asked := make(map[string]bool)
		others := func(what string) {
			if u == nil || !u.mu.TryLock() { // nothing else runs
				t.Errorf("Uploader.mu is held during a call of %s", what)
				return
			}
			u.mu.Unlock()
			asked[what] = true
		}
		dir := t.TempDir()
		u = newUploader(t, dir, mem.New(), func(c *Config) {
			c.Inputs = func() []string { others("Inputs"); return []string{"train", "val"} }
			c.Cursors = func() Cursors { others("Cursors"); return Cursors{"train": json.RawMessage("1")} }
			c.Reached = func(c Cursors, _ int64) Cursors { others("Reached"); return c }
		})
		link, free := u.snapshots.hardLink, u.snapshots.free
		u.snapshots.hardLink = func(from, to string) error { others("link"); return link(from, to) }
		u.snapshots.free = func(root *os.Root) (int64, error) { others("free"); return free(root) }
		write(t, dir, map[string]string{"step-1/model.pt": zipped(t, "1"), "step-2/model.pt": "PK", "step-3/model.pt": "PK"})
		write(t, dir, map[string]string{"step-1/" + markerName: `{"samplesSeen": 7}`}) // the others are held early
		if err := u.scan(false); err != nil {
			t.Fatal(err)
		}
		if _, err := u.Commit(t.Context(), CommitRequest{Path: "step-2", Step: 2, SamplesSeen: 8}); err != nil {
			t.Fatal(err)
		}
		for _, what := range []string{"Inputs", "Cursors", "Reached", "link", "free"} {
			if !asked[what] {
				t.Errorf("%s was not called", what)
			}
		}
	})
}

// diskMethods are methods of this package that read or write the disk, by the field or variable that
// they are called on.
var diskMethods = map[string][]string{
	"snapshots": {"take", "adopt", "drop", "rewrite", "open", "left", "journal", "hold"},
	"detection": {"weigh", "weighHeld", "judgeView", "learn", "recallShapes"},
	"renames":   {"into", "take", "forget"},
	"positions": {"request", "came", "note"},
	"cfg":       {"Cursors", "Inputs", "Reached"},
	"t":         {"files", "writers", "changedAfter", "openFile", "judge"},
}

// diskFunctions do so, too.
var diskFunctions = []string{"present", "openTree", "readMark", "readPlain", "writtenAt", "recallIDs", "restoredCopy"}

// diskWriters are methods of Uploader that do so, too.
var diskWriters = []string{
	"settle", "noteIDs", "see", "evaluate", "judge", "entryOf", "label", "hasInode", "lose", "loseRemoved", "holdEarly", "dropEarly", "linkEarly",
	"rescue", "rescueEarly", "rescueForScan", "watches", "laterOnes", "forgetShipped", "scan", "scanDirectory", "warnOfUnknownPositions", "reached",
	"writeHome", "readHome", "stamp",
}

// Nothing reads or writes the disk, and nobody else is asked, between u.mu.Lock and u.mu.Unlock, and in
// functions with the suffix Locked.
func TestUploaderReadsNoFileWithItsMutex(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	functions, regions := 0, 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Body == nil {
				continue
			}
			locked := strings.HasSuffix(f.Name.Name, "Locked") && receiverOf(f) == "Uploader"
			if locked {
				functions++
			}
			walkLocked(f.Body.List, locked, func(s ast.Stmt) {
				regions++
				if call := diskCall(s); call != "" {
					t.Errorf("%s: %s calls %s with Uploader.mu", set.Position(s.Pos()), f.Name.Name, call)
				}
			})
		}
	}
	if functions < 15 || regions < 200 {
		t.Errorf("found %d functions and %d statements with the mutex, want most of the package", functions, regions)
	}
}

func receiverOf(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	star, ok := f.Recv.List[0].Type.(*ast.StarExpr)
	if !ok {
		return ""
	}
	name, _ := star.X.(*ast.Ident)
	return name.Name
}

// walkLocked calls found for each statement that runs with u.mu held, and returns whether it is held
// after them.
func walkLocked(list []ast.Stmt, held bool, found func(ast.Stmt)) bool {
	for _, s := range list {
		switch lockCall(s) {
		case "Lock":
			held = true
			continue
		case "Unlock":
			held = false
			continue
		}
		switch s := s.(type) {
		case *ast.DeferStmt: // runs at the end, and Unlock before it if it was deferred later
			continue
		case *ast.BlockStmt:
			held = walkLocked(s.List, held, found)
			continue
		case *ast.IfStmt:
			walkParts(held, found, s.Init, &ast.ExprStmt{X: s.Cond})
			walkLocked(s.Body.List, held, found)
			if s.Else != nil {
				walkLocked([]ast.Stmt{s.Else}, held, found)
			}
			continue
		case *ast.ForStmt:
			walkParts(held, found, s.Init, s.Post)
			walkLocked(s.Body.List, held, found)
			continue
		case *ast.RangeStmt:
			walkParts(held, found, &ast.ExprStmt{X: s.X})
			walkLocked(s.Body.List, held, found)
			continue
		case *ast.SwitchStmt:
			walkParts(held, found, s.Init)
			for _, c := range s.Body.List {
				clause := c.(*ast.CaseClause)
				for _, x := range clause.List {
					walkParts(held, found, &ast.ExprStmt{X: x})
				}
				walkLocked(clause.Body, held, found)
			}
			continue
		case *ast.SelectStmt:
			for _, c := range s.Body.List {
				walkLocked(c.(*ast.CommClause).Body, held, found)
			}
			continue
		}
		walkParts(held, found, s)
	}
	return held
}

func walkParts(held bool, found func(ast.Stmt), parts ...ast.Stmt) {
	for _, s := range parts {
		if held && s != nil {
			found(s)
		}
	}
}

// lockCall returns Lock or Unlock for a statement that calls it on the mutex of an Uploader.
func lockCall(s ast.Stmt) string {
	x, ok := s.(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := x.X.(*ast.CallExpr)
	if !ok {
		return ""
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	mu, ok := f.X.(*ast.SelectorExpr)
	if !ok || mu.Sel.Name != "mu" || lastName(mu.X) != "u" {
		return ""
	}
	return f.Sel.Name
}

// lastName returns the last name of a chain of selectors.
func lastName(x ast.Expr) string {
	switch x := x.(type) {
	case *ast.Ident:
		return x.Name
	case *ast.SelectorExpr:
		return x.Sel.Name
	}
	return ""
}

// diskCall returns the name of a call of a statement that reads or writes the disk, or asks others.
// Functions that it makes are called later.
func diskCall(s ast.Stmt) (name string) {
	ast.Inspect(s, func(n ast.Node) bool {
		if _, later := n.(*ast.FuncLit); later {
			return false
		}
		call, ok := n.(*ast.CallExpr)
		if !ok || name != "" {
			return name == ""
		}
		switch f := call.Fun.(type) {
		case *ast.Ident:
			if slices.Contains(diskFunctions, f.Name) {
				name = f.Name
			}
		case *ast.SelectorExpr:
			of := lastName(f.X)
			switch {
			case of == "root", of == "disk", of == "os", of == "sys", slices.Contains(diskMethods[of], f.Sel.Name),
				of == "u" && slices.Contains(diskWriters, f.Sel.Name):
				name = of + "." + f.Sel.Name
			}
		}
		return name == ""
	})
	return name
}
