# What can be done with this repository. A bare `make` prints this list.

.DEFAULT_GOAL := help
FUZZTIME ?= 20s

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile every package
	go build ./...

.PHONY: check
check: ## gofmt, go vet and staticcheck; prints nothing when all is well
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "not formatted (gofmt -w):"; echo "$$unformatted"; exit 1; }
	@go vet ./...
	@go tool staticcheck ./...

.PHONY: test
test: ## every test, under the race detector; needs PostgreSQL server binaries
	go test -race -timeout 15m ./...

.PHONY: cover
cover: ## the tests once more, with a coverage profile in coverage.txt
	go test -timeout 15m -coverpkg=./... -coverprofile=coverage.txt ./...
	@go tool cover -func=coverage.txt | tail -n 1

.PHONY: fuzz
fuzz: ## each fuzz target for FUZZTIME (default 20s)
	@grep -rl --include='*_test.go' '^func Fuzz' . | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$(dirname "$$file") $$target"; \
			go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$(dirname "$$file")" || exit 1; \
		done; \
	done

.PHONY: bench
bench: ## the benchmarks with their native twins, one line per result
	go run ./internal/bench -run all

.PHONY: chaos
chaos: ## ten bad days for the log, ten for read models with each kind of windows, twenty for everything, deaths at every named point, and the tests of ids at full length: an hour and a half
	@for seed in 1 2 3 4 5 6 7 8 9 10; do go run ./internal/chaos -run horizon -seed $$seed -seconds 20 -json || exit 1; done
	@for seed in 1 2 3 4 5 6 7 8 9 10; do for windows in adaptive fixed off; do \
		echo "fan-in, seed $$seed, windows $$windows"; \
		go run ./internal/chaos -run fan-in -producers 5 -events 50000 -skew 2s -delay 0..2s -windows $$windows -seed $$seed -json || exit 1; \
	done; done
	@for seed in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
		go run ./internal/chaos -run all -instances 4 -seed $$seed -seconds 60 -json || exit 1; \
	done
	@for seed in 1 2 3; do go run ./internal/chaos -run points -instances 3 -seed $$seed -json || exit 1; done
	@for name in failover zombie stall; do go run ./internal/chaos -run $$name -seed 1 -json || exit 1; done
	WEIR_LONG=1 go test -count 1 -timeout 15m -run 'HundredMillion|TenMillion' .
	go test -count 1 -timeout 15m -run Death ./app -every-death

.PHONY: up
up: ## start PostgreSQL and NATS of docker-compose.yml and wait until they are healthy
	docker compose up -d --wait

.PHONY: down
down: ## stop them; their data stays in the volumes
	docker compose down

.PHONY: clean
clean: ## remove what the targets above leave behind
	rm -rf bin coverage.txt *.test *.prof *.out
