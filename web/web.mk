# Targets of web, included by the Makefile of the workspace. Everything is built from pinned sources: cargo and npm suffice.

WEB_TARGET := $(or $(CARGO_TARGET_DIR),$(CURDIR)/target)
WEB_BINDGEN := $(WEB_TARGET)/bindgen/release/annulus-bindgen
WEB_WASM := $(WEB_TARGET)/wasm32-unknown-unknown/wasm/annulus_web.wasm

# A binary that is built where Node is (20.19 or newer, which Vite needs) has the page in it; elsewhere it says at /inspect how
# to get it.
build: $(shell node -p '[a, b] = process.versions.node.split("."); a > 20 || (a == 20 && b >= 19) ? "web" : ""' 2>/dev/null)

WEB_PACKED := web/package/wasm/annulus_plan_bg.wasm
WEB_SOURCES := $(shell find web/page web/package -type f -not -path '*/wasm/*') web/package.json web/tsconfig.json web/vite.config.ts

.PHONY: web web-wasm test-web bench-web web-always

# The page, as a static folder. It is only written anew when something changed: the server's binary holds it.
web: web/dist/index.html ## the inspector as a static folder, web/dist

web/dist/index.html: $(WEB_PACKED) $(WEB_SOURCES) web/node_modules/.package-lock.json
	cd web && npm run --silent build

# The npm package's wasm and its types: web/package/wasm. `npm pack` in web/package yields the package.
web-wasm: $(WEB_PACKED)

$(WEB_PACKED): $(WEB_WASM) $(WEB_BINDGEN)
	$(WEB_BINDGEN) $(WEB_WASM) $(@D)

# Cargo knows what has changed; where nothing has, the file keeps its time.
$(WEB_WASM): web-always
	cargo build --locked --profile wasm --target wasm32-unknown-unknown -p annulus-web

$(WEB_BINDGEN): web/bindgen/Cargo.toml web/bindgen/Cargo.lock web/bindgen/src/main.rs
	cargo build --release --locked --manifest-path web/bindgen/Cargo.toml --target-dir $(WEB_TARGET)/bindgen
	touch $@

# Not `npm ci`: npm 11 refuses locks in which an optional package for another system is missing. Versions come from the lock here too.
web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm install --no-save --no-fund --no-audit
	touch $@

# The crate, the package, and the page in a headless Chromium; writes the screenshots of docs/.
test-web: web ## the inspector in a headless Chromium
	cargo build --release --locked -p annulus-plan --features cli
	cargo test --locked -p annulus-web
	cd web && ANNULUS_PLAN=$(WEB_TARGET)/release/annulus-plan npm test --silent

# Frame time while scrubbing 64 x 4,096, and first paint; writes docs/inspector-speed.md.
bench-web: web ## frame time and first paint of the inspector
	cd web && npm run --silent bench
