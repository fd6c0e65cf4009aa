# Needs GNU make, bash and Go. "make" lists the targets.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
VERSION ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)

# What all files of a release are dated.
DATE ?= $(or $(SOURCE_DATE_EPOCH),$(shell git log -1 --format=%ct 2>/dev/null))

# What the release image is called where it is loaded.
IMAGE ?= localhost/stager:dev

# Where the image of a release will be, without a tag, such as registry.example.com/stager. Injected
# pods use it, unless --image is set.
REPOSITORY ?=

# Where the files of a release will be, such as https://example.com/stager. Krew downloads the
# kubectl plugin from there.
URL ?=

# Whom the packages of a release name, such as Ada <ada@example.com>.
MAINTAINER ?=

# Tools run by version, so that everybody gets the same answer.
GOLANGCI_LINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
DEADCODE      := golang.org/x/tools/cmd/deadcode@v0.52.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0
MKDOCS        := mkdocs-material==9.7.0

# What lint must be able to check: vuln makes it an error that the database of
# vulnerabilities cannot be reached. Tests have STAGER_TEST_REQUIRE in the same way;
# "make test" and "make test-all" without it insist on what the machine can run.
STAGER_LINT_REQUIRE ?=

say = @printf '\n== %s\n' '$(1)'

.PHONY: help build image release reference man docs demo bench soak simulation test test-all test-apiserver test-cluster lint fmt clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' $(MAKEFILE_LIST) | expand -t 14

build: ## build bin/stager, one static file
	CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o bin/stager ./cmd/stager

image: build ## make bin/stager-image.tar, the release image, without a container engine
	go run -C e2e ./cmd/mkimage -o '$(CURDIR)/bin/stager-image.tar' -t '$(IMAGE)' '$(CURDIR)/bin/stager'

release: ## make bin/release, all files of a release: make release VERSION=0.1.0
	go run -C e2e ./cmd/release -o '$(CURDIR)/bin/release' -version '$(VERSION)' -commit '$(COMMIT)' -date '$(DATE)' -repository '$(REPOSITORY)' -url '$(URL)' -maintainer '$(MAINTAINER)'

reference: ## write the pages of docs that are generated from the code
	go run -C e2e ./cmd/reference

man: ## write bin/man, the man pages of all commands
	go run -C e2e ./cmd/reference -man '$(CURDIR)/bin/man' -version '$(VERSION)'

docs: ## build bin/docs, the manual as a web site; broken links fail
	@[[ -x .cache/docs/bin/mkdocs ]] || { python3 -m venv .cache/docs && .cache/docs/bin/pip install --quiet '$(MKDOCS)'; }
	.cache/docs/bin/mkdocs build --clean --strict
	@echo "$$(find bin/docs -name index.html | wc -l) pages in bin/docs"

demo: build ## see stager at work: dataset, window, kills, checkpoints, all on this machine
	go run -C e2e ./cmd/demo

.PHONY: recording
recording: build ## write docs/assets/demo.svg, a recording of make demo
	go build -C e2e -o /dev/null ./cmd/demo
	go run -C e2e ./cmd/recording

bench: build ## measure stager beside other clients of the same servers, in one to two hours; as root
	@echo 'Starts servers of S3, SMB, NFS, HDFS and OSS on this machine, installs or builds what is missing, and moves what has goals: 4 GiB,'
	@echo '20,000 x 50 KiB and more, to /dev/shm and /var/tmp, which takes 10 GiB of memory and 6 GiB of disk. Then 1 GiB and 2,000 x 50 KiB to and fro'
	@echo 'with each server: with stager and another client in turn, until their ratio is sure. Then trainers read through a window, and through what else'
	@echo 'there is for them. BENCH="-only goals -disk DIR -pairs 9" chooses; "-size 134217728 -files 200" takes an eighth of the room.'
	@echo 'BENCH="-only listings -pairs 1" measures windows over 1, 5 and 10 million objects without data: -row 1,000,000 chooses.'
	@echo 'BENCH="-only quick" takes less than three minutes. BENCH="-json /tmp/A.json" keeps the results, and "go run -C e2e ./cmd/bench compare /tmp/A.json /tmp/B.json" compares two such files.'
	go run -C e2e ./cmd/bench -json ../bin/bench.json -svg ../bin/bench.svg -html ../bin/bench.html $(BENCH)

# How long it runs.
SOAK ?= 30m

soak: build ## run a small cluster under faults for 30 minutes, or SOAK=8h, and find what grows; as root
	@echo 'Four daemons, an S3 server, readers and trainers share this machine for $(SOAK). It takes a core, 300 MiB of memory and 200 MiB in TMPDIR.'
	go run -C e2e ./cmd/soak -for '$(SOAK)' -out '$(CURDIR)/bin/soak'

simulation: ## compute docs/operations/at-scale.md: requests, throttling and money of 8,000 pods in a year
	go test -C e2e -count=1 -v -timeout 60m ./simulation -run TestPageIsFresh -update

test: ## run the tests that take minutes, against a real server of each protocol
	@.ci/test quick

test-all: ## run every test: those of make test, race detector, kills, trainers, a real Kubernetes; as root
	@.ci/test all

test-apiserver: ## ask a real API server for every manifest, and it the webhook; as root
	STAGER_TEST_REQUIRE=apiserver go test -C e2e -count=1 -v -timeout 60m ./cluster

test-cluster: ## that, and run jobs in a real Kubernetes on this machine; as root
	STAGER_TEST_REQUIRE=s3,apiserver,cluster go test -C e2e -count=1 -v -parallel 6 -timeout 60m ./cluster

lint: export CGO_ENABLED = 0
lint: ## find what tests do not: vet, format, linters, known vulnerabilities
	$(call say,go vet)
	go vet ./...
	cd e2e && go vet ./...
	$(call say,go vet and build for macOS)
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go vet ./...
	GOOS=darwin GOARCH=arm64 CGO_ENABLED=0 go build -o /dev/null ./cmd/stager
	$(call say,golangci-lint and gofumpt; the reasons stand in .golangci.yml)
	go run $(GOLANGCI_LINT) run ./...
	cd e2e && go run $(GOLANGCI_LINT) run ./...
	$(call say,functions that no command reaches)
	@unreached="$$(go run $(DEADCODE) ./cmd/...)" || exit; \
	! grep -v -e '^backends/conformance/' -e '^stager/jobspec/annotations.go:.* EntryOptions$$' -e '^stager/plan/decode.go:.* Parse$$' <<<"$$unreached" || \
	{ echo 'Remove these, or say in the Makefile which other module needs them. What only tests call keeps no promise.'; exit 1; }
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
