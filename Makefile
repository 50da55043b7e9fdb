# The main targets are `make demo` and `make test`. Both first install what is missing (setup.sh).
SHELL := /bin/bash
CARGO := cargo
RRUN := target/release/rrun

# The rank program records the commit that it was built from in its journal.
export RRUN_COMMIT := $(shell git describe --always --abbrev=12 --dirty 2>/dev/null)

# torchrun's black-box tests, run against rrun: `make conformance PYTEST_ARGS='-k signal'`
CONFORMANCE := CONF_VENV=$(CURDIR)/.venv LAUNCHER=$(CURDIR)/$(RRUN) EXPECT_BETTER=1 \
	.venv/bin/pytest -q tests/conformance

# Packs the programs that have been built.
WHEEL := .venv/bin/python deploy/wheel/build.py

.PHONY: docs soak hostile deny demo test slow conformance bench build check gpu gpu-imitation simulators policies wheel

build:
	@./setup.sh run
	$(CARGO) build --release --locked

# The same rounding on every x86-64 CPU with AVX2, so that the table of the demo is the same on
# all, see docs/demo_policy.md. Older CPUs do not have these instructions.
ALIKE := OMP_NUM_THREADS=1 MKL_CBWR=COMPATIBLE
ifneq (,$(shell grep -wom1 avx2 /proc/cpuinfo 2>/dev/null))
ALIKE += ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2
endif

# Removes the run folder of the last demo, so that each demo starts anew.
demo: build
	rm -rf outputs/demo
	$(ALIKE) $(RRUN) --nproc-per-node 2 eval --jobs jobs/suites/demo.json --output outputs/demo

# All parts of the tests, or those that PART names: `make test PART="jobs launch"`. What failed is
# repeated at the end, before a table; the output of each part is in target/test.
test:
	@./setup.sh test
	@.venv/bin/python tests/run $(PART)

# The package for `pip install`, from the same programs: dist/rrun-….whl, see docs/install.md.
wheel: build
	$(WHEEL)

# Takes several minutes: all jobs with 1 to 4 ranks, long soak tests, all black-box tests, and
# simulators compared with plain gymnasium.
slow: conformance hostile
	jobs/suites/simulators/install.sh pusht pusher fetch metaworld aloha
	-jobs/suites/policies/install.sh # without Python 3.12, the comparison with LeRobot is skipped
	$(CARGO) test --release --locked --workspace --no-fail-fast -- --ignored --skip gpu::
	.venv/bin/pytest -q -rs tests/page tests/gpu tests/fidelity
	tests/trackers/run.sh
	$(WHEEL)
	.venv/bin/pytest -q -rs tests/wheel
	.venv/bin/python tests/imitation/build.py
	.venv/bin/pytest -q tests/imitation

# Fuzz tests of the parsers with hostile input: ten million inputs each, 20 000 in the quick tests.
hostile: export HOSTILE_INPUTS ?= 10000000
hostile:
	@./setup.sh test
	$(CARGO) test --release --locked --workspace --test hostile -- --nocapture
	$(CARGO) test --release --locked -p models --lib -- --nocapture hostile_
	$(CARGO) build --release --locked --workspace
	$(CARGO) test --release --locked --workspace --test outside -- --nocapture --include-ignored innocent

# Eight hours of simulated time on a cluster of three nodes that loses nodes, ranks and simulators
# all the time: half an hour.
soak: export RRUN_SOAK_HOURS ?= 8
soak:
	@./setup.sh test
	$(CARGO) build --release --locked --workspace
	$(CARGO) test --release --locked --workspace --test outside -- --nocapture --ignored for_eight_hours

conformance:
	@./setup.sh test
	$(CARGO) build --release --locked --workspace
	$(CONFORMANCE) $(PYTEST_ARGS)

bench:
	@./setup.sh test
	.venv/bin/python -m pip install --quiet --disable-pip-version-check --no-deps PyOpenGL==3.1.10 # mujoco.Renderer
	$(CARGO) build --release --locked --workspace
	.venv/bin/python benches/run.py

# For a GPU machine without cargo: builds target/gpu.tar.xz, to be copied along with the sources.
# `benches/gpu.sh` runs its contents.
gpu:
	@./setup.sh run
	.venv/bin/python benches/gpu_bundle.py

# The tests of the GPU without one, with libraries that replace CUDA's, see tests/imitation.
gpu-imitation:
	@./setup.sh run
	$(CARGO) build --release --locked --workspace
	.venv/bin/python tests/imitation/build.py
	.venv/bin/python tests/imitation/run.py

# Installs cargo-deny once (3 minutes), beside libtorch. Checking advisories needs GitHub; if it
# cannot be reached, everything else is checked.
DENY := .deps/bin/cargo-deny
deny:
	@if test -x $(DENY) || $(CARGO) install --quiet --debug --locked --root .deps cargo-deny@0.20.2; then \
	$(DENY) --locked check licenses bans sources || exit 1; \
	if $(DENY) --locked fetch db >/dev/null 2>&1; then $(DENY) --locked --offline check advisories; \
	else echo "deny: advisories were not checked: their database cannot be fetched here" >&2; fi; \
	else echo "deny: dependencies were not checked: cargo-deny cannot be installed here" >&2; fi

# The site of docs/ in target/site; a broken link fails. Installs MkDocs once, into target/site-venv.
docs:
	@deploy/site/build.sh

check: deny
	.ci/style
	python3 tests/run/units.py
	$(CARGO) fmt --all --check
	$(CARGO) clippy --release --locked --workspace --all-targets -- -D warnings

# Installs third-party simulators, each in its own venv: `make simulators NAMES="pusht libero"`
NAMES ?= pusht
simulators:
	jobs/suites/simulators/install.sh $(NAMES)

# Installs LeRobot in a venv of its own, and makes small checkpoints with random weights:
# docs/lerobot_policy.md
policies:
	jobs/suites/policies/install.sh
