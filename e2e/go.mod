module github.com/stager-dev/stager/e2e

go 1.26.0
