# `make demo` and `make test` are all that one has to know; both install what is missing first (see setup.sh).
SHELL := /bin/bash
CARGO := cargo
RRUN := target/release/rrun

.PHONY: demo test slow bench build check

build:
	@./setup.sh run
	$(CARGO) build --release --locked

# Anew each time: the run folder of the last demo is removed.
demo: build
	rm -rf outputs/demo
	$(RRUN) --nproc-per-node 2 eval --jobs jobs/suites/demo.json --output outputs/demo

test:
	@./setup.sh test
	$(CARGO) test --release --locked --workspace

# Minutes more: all jobs at 1 to 4 ranks, long soaks.
slow:
	@./setup.sh test
	$(CARGO) test --release --locked --workspace -- --ignored --skip gpu_

bench:
	@./setup.sh test
	$(CARGO) build --release --locked --workspace
	.venv/bin/python benches/run.py

check:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings
