module github.com/stager-dev/stager/e2e

go 1.26.0

require (
	github.com/dustin/go-humanize v1.1.0
	golang.org/x/sys v0.26.0
)

require (
	github.com/rogpeppe/go-internal v1.16.0
	golang.org/x/tools v0.26.0 // indirect
)

replace github.com/stager-dev/stager => ../
