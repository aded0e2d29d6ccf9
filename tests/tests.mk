# Tests. `make test` is what CI runs; parity and bench are run by hand.

# The crates around MLX are tested in release mode: it is the build that is served, and it is built for HTTP tests anyway.
NATIVE := --package annulus-kernels --package annulus-engine --package annulus-server --package annulus-tests

.PHONY: test
test: test-tools lint test-plan test-plan-wasm test-native test-http test-web ## everything that CI runs

.PHONY: test-tools
test-tools: setup
	@scripts/setup-tests.sh

.PHONY: lint
lint: setup ## formatting and clippy
	cargo fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- --deny warnings

.PHONY: test-plan
test-plan: ## the planner's tests: no MLX, any system
	cargo test --locked --package annulus-plan --all-features

.PHONY: test-native
test-native: build ## tests of kernels, engine and server
	$(CARGO) test --release --locked $(NATIVE)

.PHONY: test-kernels-asan
test-kernels-asan: ## the kernels' tests under AddressSanitizer, with a nightly toolchain that it installs
	rustup toolchain install nightly --profile minimal
	RUSTFLAGS=-Zsanitizer=address cargo +nightly test --locked --release --package annulus-kernels \
	    --lib --target $$(rustc -vV | sed -n 's/^host: //p') --target-dir target/asan

.PHONY: test-kernels-aarch64
test-kernels-aarch64: ## the kernels' tests on an emulated aarch64, NEON: needs qemu-aarch64 and aarch64-linux-gnu-gcc (Debian: qemu-user, gcc-aarch64-linux-gnu)
	rustup target add aarch64-unknown-linux-gnu
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc \
	CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L /usr/aarch64-linux-gnu" \
	    cargo test --locked --release --package annulus-kernels --lib --target aarch64-unknown-linux-gnu --target-dir target/aarch64

.PHONY: bench-kernels
bench-kernels: ## products of a small model on every path of this processor, beside dense float32
	cargo run --locked --release --package annulus-kernels --example products

.PHONY: test-http
test-http: build ## the official Python client against the binary and the default model
	$(ENV) tests/http/run.sh

.PHONY: parity
parity: build ## compare with mlx-lm, transformers and llama.cpp: logits to the bit, tokens, chats, cache geometry
	$(ENV) tests/parity/run.sh
	$(ENV) tests/parity/tokens/run.sh "$$(scripts/default-model.sh)"
	$(ENV) tests/parity/published/run.sh "$$(scripts/venv.sh tests/parity/requirements.txt)"
	$(ENV) $(MAKE) --no-print-directory parity-plan PYTHON="$$(scripts/venv.sh tests/parity/requirements.txt)"

.PHONY: accuracy-cpu
accuracy-cpu: build ## our CPU kernels beside MLX's on the default model: rounded activations, greedy tokens (minutes)
	model=$$(scripts/default-model.sh); $(ENV) "$$(scripts/venv.sh tests/parity/requirements.txt)" tests/parity/kernels.py \
	    $(BINARY) "$$model" "$${model%/models/*}/parity"

.PHONY: bench
bench: build ## measure beside mlx-lm and llama.cpp (ROUNDS=5)
	$(ENV) tests/bench/run.sh $(or $(ROUNDS),5)
