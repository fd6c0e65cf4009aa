# Needs GNU make, bash and Go; nothing else is to be installed. "make" lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# Tools run by version, so that everybody gets the same answer.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0

# What lint must be able to check: vuln makes it an error that the database of
# vulnerabilities cannot be reached. Tests have STAGER_TEST_REQUIRE in the same way.
STAGER_LINT_REQUIRE ?=

# The servers that tests insist on. smb, nfs and hdfs install Debian's packages, as
# root; they are run when named: make test STAGER_TEST_REQUIRE=s3,oss,smb,nfs,hdfs
STAGER_TEST_REQUIRE ?= s3,oss
export STAGER_TEST_REQUIRE
NOT_ASKED = $(filter-out $(subst $(comma), ,$(STAGER_TEST_REQUIRE)),s3 oss smb nfs hdfs)
comma := ,

# The race detector needs a C compiler; Go says 0 here when there is none.
RACE := $(if $(filter 1,$(shell go env CGO_ENABLED)),-race)

say = @printf '\n== %s\n' '$(1)'

.PHONY: help build demo test lint fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 10

build: ## build bin/stager, one static file
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION)' -o bin/stager ./cmd/stager

demo: build ## see stager at work: dataset, window, kills, checkpoints, all on this machine
	go run -C e2e ./cmd/demo

test: ## run every test, against a real S3 server too
	$(call say,unit tests and the contract of stores$(if $(RACE), with the race detector, WITHOUT the race detector: it needs a C compiler))
	go test $(RACE) -count=1 ./...
	$(call say,the binary as it is typed and the rules of the house; the S3 server is built once)
	cd e2e && go test $(RACE) -count=1 ./...
	$(if $(NOT_ASKED),$(call say,NOT RUN: the real servers of $(NOT_ASKED); STAGER_TEST_REQUIRE names those that are wanted))

lint: ## find what tests do not: vet, format, linters, known vulnerabilities
	$(call say,go vet)
	go vet ./...
	cd e2e && go vet ./...
	$(call say,golangci-lint and gofumpt; the reasons stand in .golangci.yml)
	go run $(GOLANGCI_LINT) run ./...
	cd e2e && go run $(GOLANGCI_LINT) run ./...
	$(call say,known vulnerabilities in what is called)
	GOBIN='$(CURDIR)/.cache/bin' go install $(GOVULNCHECK)
	@code=0; .cache/bin/govulncheck ./... || code=$$?; \
	case $$code in \
	0) ;; \
	3) exit 1 ;; \
	*) echo 'NOT CHECKED: govulncheck cannot do its work, see above. STAGER_LINT_REQUIRE=vuln makes this an error.'; \
	   [[ ',$(STAGER_LINT_REQUIRE),' != *,vuln,* ]] ;; \
	esac

fmt: ## format everything as lint wants it
	go run $(GOLANGCI_LINT) fmt ./...
	cd e2e && go run $(GOLANGCI_LINT) fmt ./...

clean: ## remove what these targets made
	rm -rf bin .cache
