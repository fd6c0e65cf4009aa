module github.com/stager-dev/stager/e2e

go 1.26.0

require github.com/dustin/go-humanize v1.1.0

replace github.com/stager-dev/stager => ../
