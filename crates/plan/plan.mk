# Targets of crates/plan, included by the Makefile of the workspace.

FUZZ_PLAN ?= 200000

.PHONY: fuzz-plan bench-plan test-plan-wasm parity-plan

# Random histories against the laws, and the small scope, in release; prints how many ran and how many failed.
fuzz-plan:
	cargo test --release -p annulus-plan --test plan small_scope:: -- --nocapture
	FUZZ_PLAN=$(FUZZ_PLAN) cargo test --release -p annulus-plan --test plan fuzz:: -- --nocapture

# A steady decode step and a mask description, in nanoseconds and as a multiple of cloning the state.
bench-plan:
	cargo bench -p annulus-plan --bench steady

# The crate's tests as wasm under Node.
test-plan-wasm:
	CARGO_TARGET_WASM32_WASIP1_RUNNER="node --no-warnings $(CURDIR)/crates/plan/tests/wasi-runner.mjs" \
		cargo test --target wasm32-wasip1 -p annulus-plan

# Random scenarios through mlx-lm's live cache classes and through the planner. PYTHON has mlx-lm 0.32.2 and mlx[cpu].
parity-plan:
	cargo build --release -p annulus-plan --features cli
	$(or $(PYTHON),python3) crates/plan/parity/differential.py \
		"$${CARGO_TARGET_DIR:-target}/release/annulus-plan" --count $(or $(PARITY_PLAN),1000)
