# Everything a newcomer needs: `make serve`, `make test`. `make help` lists the rest.

SHELL := /bin/bash
BACKEND ?= $(if $(filter Darwin,$(shell uname -s)),metal,cpu)
MODEL ?=
ARGS ?=
export BACKEND

ENV := scripts/env.sh
CARGO := $(ENV) cargo
BINARY := target/release/annulus

.PHONY: help
help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: setup
setup: ## install and fetch what building and running need, once (BACKEND=cpu|metal|cuda12|cuda13)
	@scripts/setup.sh $(BACKEND)

.PHONY: build
build: setup ## build target/release/annulus
	$(CARGO) build --release --locked --package annulus-server

.PHONY: serve
serve: build ## serve a model over HTTP (MODEL=..., ARGS="--port 8080")
	$(ENV) $(BINARY) serve $(MODEL) $(ARGS)

.PHONY: dist
dist: setup ## a relocatable tarball in dist/
	$(ENV) scripts/dist.sh

include tests/tests.mk
include crates/plan/plan.mk
-include web/web.mk
