# What people type. Everything that is measured or decided lives in the Go code; this file only sets up and calls it.
# A "##" comment documents a target, a "#:" comment a variable: make help prints both.

# The iptables tools often live where the PATH of an ordinary user does not look.
export PATH := $(PATH):/usr/local/sbin:/usr/sbin:/sbin

# Pinned, so that the same commit gives the same findings.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
ACTIONLINT := github.com/rhysd/actionlint/cmd/actionlint@v1.7.12

# Every run records the commit of its source. Without git, or in another user's checkout, there is none. Documents and tests
# are no part of the program.
PROGRAM := . ':!*.md' ':!*.png' ':!docs/results.yaml' ':!.ci' ':!*_test.go'
COMMIT := $(shell git log -1 --format=%h --abbrev=12 -- $(PROGRAM) 2>/dev/null)$(shell git status --porcelain -- $(PROGRAM) 2>/dev/null | grep -q . && echo -dirty)

#: N         Services                                  default: the scenario's own
N ?=
#: E         endpoints per Service                     default: the scenario's own
E ?=
#: SCENARIO  name in the library, or a .yaml file      default: steady-churn
SCENARIO ?=
#: SUBJECTS  what is measured, separated by commas     default: synclab/iptables-legacy, and kube-proxy if built; compare: nearly all
SUBJECTS ?=
#: REPS      repetitions of each cell                  default: 3; compare: until ratios are within 5 %, for 20 minutes
REPS ?=
#: SEED      seed of the cluster and of its events     default: the scenario's own
SEED ?=
#: OUT       the folder of the run                     default: a new one in runs/
OUT ?=
#: MINUTES   of a soak                                 default: 10
MINUTES ?=

# make plan: the cluster of today is N Services of E endpoints.
#: CHURN     plan: endpoint changes a second           default: 10
CHURN ?=
#: GROW      plan: what grows, as services=2x,nodes=+20%
GROW ?=
#: NODES     plan: nodes of the cluster                default: 1000
NODES ?=
#: BUDGET    plan: time to measure in                   default: 10m
BUDGET ?=

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets and the variables
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo
	@echo "Variables of scenario and compare (and OUT of report):"
	@sed -n 's/^#: /  /p' $(MAKEFILE_LIST)
	@echo
	@echo "For example: make scenario N=10000 E=10 SUBJECTS=synclab/iptables-legacy"

.PHONY: deps
deps: ## install iptables and nftables if they are missing and this user may
	@sh scripts/deps.sh

.PHONY: build
build: ## build bin/synclab
	go build -ldflags "-X synclab/bench/lab/machine.Commit=$(COMMIT)" -o bin/synclab ./cmd/synclab

comma := ,

# The words that scenario and compare have in common.
RUN = $(strip $(SCENARIO) $(if $(N),--services $(N)) $(if $(E),--endpoints $(E)) $(if $(SUBJECTS),--subjects $(SUBJECTS)) \
	$(if $(REPS),--reps $(REPS)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)))

# The mode of scenario's default subjects: the first that this machine has the tools for.
has = $(shell PATH="$(PATH)" command -v $(1))
MODE = $(if $(call has,iptables-legacy-restore),iptables-legacy,$(if $(call has,iptables-nft-restore),iptables-nft,nftables))

.PHONY: scenario
scenario: deps build ## run a scenario and write its report, with kube-proxy beside it where that is built
	bin/synclab run $(if $(SUBJECTS),,$$(bin/synclab build kube-proxy --cached >/dev/null && echo --subjects synclab/$(MODE),kube-proxy/$(MODE) || echo "kube-proxy is not beside it: bin/synclab build kube-proxy builds one" >&2)) $(RUN)

.PHONY: compare
compare: deps build ## run a scenario with synclab and kube-proxy in every mode, and compare them
	bin/synclab compare $(RUN)

# Six repetitions are the fewest that ratios have a 95 % interval of.
.PHONY: engine
engine: deps build ## compare synclab's backends with kube-proxy at the sizes of scenario engine's targets, up to N
	@echo "$(or $(REPS),6) repetitions of five cells up to $(or $(N),50000) Services: on two CPUs about 4 minutes each, and 4 more for one of 5,000"
	@echo "Services with kube-proxy/iptables-nft, which is done once. N=1000 tries it out; REPS=3 is half the time, without intervals."
	bin/synclab compare engine --reps $(or $(REPS),6) $(if $(N),--services $(N)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(if $(SUBJECTS),--subjects $(SUBJECTS))

.PHONY: virtual
virtual: ## run proxiers for a thousand hours of virtual time, with faults, on tables in memory: SEED, SEEDS, HOURS
	go test -c -o bin/virtual.test ./bench/internal/virtualtest
	seq $(or $(SEED),1) $$(($(or $(SEED),1) + $(or $(SEEDS),42) - 1)) | GOMAXPROCS=1 xargs -P $$(nproc) -I{} \
		bin/virtual.test -test.v -test.timeout 0 -test.run '^TestSoak$$' -seed {} -seeds 1 -hours $(or $(HOURS),24)

.PHONY: soak
soak: deps build ## play random changes and faults with real packets for MINUTES, and check the invariants
	bin/synclab soak --budget $(or $(MINUTES),10)m $(if $(SEED),--seed $(SEED)) $(if $(SUBJECTS),--subjects $(SUBJECTS)) $(if $(OUT),--out $(OUT))

# A subject that does not converge within the scenario's ten minutes is stopped; the tables say so.
.PHONY: traversal
traversal: deps build ## measure the cost of first packets, every proxier, at the sizes of scenario traversal up to N
	@echo "$(or $(REPS),3) repetitions of five cells up to $(or $(N),30000) Services: on two CPUs about 7 minutes each."
	bin/synclab compare traversal --reps $(or $(REPS),3) $(if $(N),--services $(N)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(if $(SUBJECTS),--subjects $(SUBJECTS))

.PHONY: handshakes
handshakes: deps build ## measure handshakes and echoes of new flows from a client pod through the node to another (N=10000)
	bin/synclab compare handshakes --reps $(or $(REPS),3) $(if $(N),--services $(N)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(if $(SUBJECTS),--subjects $(SUBJECTS))

.PHONY: faults
faults: deps build ## inject every fault in turn, six subjects: time to detect and to repair, flows lost (half an hour at N=200)
	bin/synclab compare faults --reps $(or $(REPS),1) $(if $(N),--services $(N)) $(if $(E),--endpoints $(E)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) \
		--subjects $(or $(SUBJECTS),synclab/iptables-legacy$(comma)synclab/iptables-nft-tree$(comma)synclab/nftables$(comma)kube-proxy/iptables-legacy$(comma)kube-proxy/iptables-nft$(comma)kube-proxy/nftables)

.PHONY: disruption
disruption: deps build ## send flows to Services while rules change, with every proxier in turn (N=5000)
	bin/synclab compare disruption --reps $(or $(REPS),1) $(if $(N),--services $(N)) $(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT)) $(if $(SUBJECTS),--subjects $(SUBJECTS))

.PHONY: plan
plan: deps build ## measure how far a cluster of N Services can grow, for BUDGET (ten minutes; thirty give a measured answer)
	bin/synclab plan --services $(or $(N),5000) --endpoints $(or $(E),10) --churn $(or $(CHURN),10) \
		$(if $(GROW),--grow $(GROW)) $(if $(NODES),--nodes $(NODES)) $(if $(SUBJECTS),--subjects $(SUBJECTS)) $(if $(BUDGET),--budget $(BUDGET)) \
		$(if $(SEED),--seed $(SEED)) $(if $(OUT),--out $(OUT))

.PHONY: report
report: build ## build the report of a run again (OUT, or the newest run)
	bin/synclab report $(OUT)

# Published numbers need a commit and a quiet machine; see scripts/results and docs/results.yaml.
.PHONY: results
results: deps build ## measure what README and docs/ publish, and write it there: all that is not apart, or PART=plan,…; LIST=1, RENDER=1; DOCS=COPY N=100 REPS=1 tries it
	@bin/synclab build kube-proxy
	go run ./scripts/results $(if $(LIST),-list) $(if $(PART),-part $(PART)) $(if $(RENDER),-render) $(if $(FORCE),-force) \
		$(if $(DOCS),-docs $(DOCS) -uncommitted $(if $(N),-n $(N)) $(if $(REPS),-reps $(REPS)))

.PHONY: kube-proxy
kube-proxy: build ## build the unmodified kube-proxy that the lab compares with (once, some minutes)
	bin/synclab build kube-proxy

.PHONY: regressions
regressions: deps build ## run scenarios of known kube-proxy bugs: synclab has none of them, kube-proxy those of its version
	@bin/synclab build kube-proxy || echo "without it, kube-proxy's side is skipped"
	SYNCLAB_ALL_REGRESSIONS=1 go test -count=1 -v -run '^TestRegressions' ./cmd/synclab

.PHONY: check
check: ## vet, and the tests that take less than seconds: for the inner loop
	go vet ./...
	go test -short ./...

# Uncached: the results depend on the kernel and on the tools, which go test does not know of. Tests that measure wait for most
# of their time: so more packages run at once than there are CPUs.
.PHONY: test
test: deps build ## run all tests, also those in network namespaces and with kube-proxy
	@bin/synclab build kube-proxy || echo "without it, the tests that need kube-proxy are skipped"
	go run ./scripts/gotest $(if $(SKIPS),-skips $(SKIPS)) $(if $(LATER),-later $(LATER)) -count=1 -timeout 20m -p $$((1 + $$(nproc))) -parallel 4 ./...

.PHONY: random
random: deps ## run the random tests with other seeds than make test, from SEED (1000) on, for MINUTES, each package at least once
	go run ./scripts/random -minutes $(or $(MINUTES),10) -seed $(or $(SEED),1000)

.PHONY: race
race: deps ## run the tests under the race detector (needs a C compiler)
	go test -race -count=1 -timeout 30m ./...

.PHONY: bench
bench: deps ## run the Go benchmarks; the output is for benchstat
	go test -run '^$$' -bench . -benchmem ./bench/...

.PHONY: image
image: ## build an OCI image in bin/image, with its tools, kube-proxy and a kernel, without a container daemon (needs mmdebstrap)
	go run ./scripts/image -out bin/image

.PHONY: image-test
image-test: image ## run doctor, small runs and an Indexed Job in the image, as root and as an ordinary user (needs root, and crun or runc)
	SYNCLAB_IMAGE=$(CURDIR)/bin/image go test -count=1 -v -timeout 30m -run '^Test(Image|JobOfContainers)$$' ./scripts/image

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, actionlint, and words that make texts hard to read
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then \
		echo "gofmt -w has work to do in:"; echo "$$unformatted"; exit 1; fi
	go vet ./...
	go run $(STATICCHECK) ./...
	@# Actionlint checks the inputs of ./synclab if the workflow is in a repository that has the action there.
	dir=$$(mktemp -d) && mkdir -p $$dir/.git $$dir/.github/workflows && cp deploy/github/*.yaml $$dir/.github/workflows/ && ln -s "$(CURDIR)" $$dir/synclab && \
		(cd $$dir && go run $(ACTIONLINT)); status=$$?; rm -r $$dir; exit $$status
	go run ./scripts/words

.PHONY: clean
clean: ## remove bin/ (runs/ stays: it holds measurements)
	rm -rf bin
