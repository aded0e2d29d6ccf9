# Targets of crates/plan, included by the Makefile of the workspace.

FUZZ_PLAN ?= 200000

.PHONY: fuzz-plan bench-plan test-plan-wasm

# Random histories against the laws, in release; prints how many ran and how many failed.
fuzz-plan:
	FUZZ_PLAN=$(FUZZ_PLAN) cargo test --release -p annulus-plan --test fuzz -- --nocapture

# A steady decode step and a mask description, in nanoseconds and as a multiple of cloning the state.
bench-plan:
	cargo bench -p annulus-plan --bench steady

# The crate's tests as wasm under Node. With its compiler threads Node 20 may die of a segmentation fault after the last test.
test-plan-wasm:
	CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings --single-threaded $(CURDIR)/crates/plan/tests/wasi-runner.mjs" \
		cargo test --target wasm32-wasip1 -p annulus-plan
