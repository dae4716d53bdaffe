# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SITE_STAMP := $(VENV)/.installed-docs
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' pyproject.toml)

# Two for each core: brokers and JVMs that start leave cores idle.
WORKERS ?= $(shell expr 2 \* $$(nproc 2>/dev/null || echo 2))

# Where this is set, every process under test compiles the program again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: python setup servers demo test test-fast test-apart kube-test kube-strimzi-test check prose docs conformance histories simulate format lock clean image image-test kube-node-test sbom notice dist release-check chart soak matrix restore-matrix store-matrix screenshots kernels collected

setup: $(STAMP)

python:
	@$(PYTHON) -c 'import sys; sys.exit("tiered-sidecar needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'

# First the locked pip, which finds pinned packages sooner. Jars in PySpark's wheel are compressed already. Bytecode is compiled on
# all cores; of what is left out little is ever imported.
# The program itself is installed meanwhile: that waits for what builds it, which warns of editable installations.
$(STAMP): export DIST_EXTRA_CONFIG = $(CURDIR)/wheels.cfg
$(STAMP): requirements.lock pyproject.toml | python
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV) || { echo "cannot create a virtual environment: install the package python3-venv" >&2; exit 1; }
	sed -n '/^pip==/,/#/p' requirements.lock >$(VENV)/pip.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r $(VENV)/pip.lock
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --no-deps --require-hashes -r requirements.lock
	PYTHONWARNINGS=ignore $(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e . & program=$$!; \
	$(BIN)/python -m compileall -q -j 0 -x '/(tests|sympy|mpmath|networkx|mypy|mypyc|pip|setuptools|pkg_resources|moto|cfnlint|graphql|aws_xray_sdk|pandas|ml|mllib)/' $(VENV)/lib sidecar producer_state >/dev/null; wait $$program
	@touch $(STAMP)

# It needs no package: both wait for the network, and compile, in parallel. The packages first: the type checker, which uses one
# core for long, waits for them.
servers: python
	@nice $(PYTHON) -m tests.servers.bring

demo: setup
	@$(BIN)/python -m tests.demo

# The gate's order is fixed; without CI in the environment it is another one each time. A file's tests share servers: they stay together,
# and the files that last longest begin (tests/scheduling.py).
test:
	@$(MAKE) --no-print-directory -j4 --output-sync=target check kernels collected servers
	@echo "Left to make test-apart, tests of: $$(grep -rl 'mark[.]apart' tests --include='*.py' | sort | tr '\n' ' ')"
	@$(BIN)/python -m tests.servers.stores
	@$(BIN)/python -m tests.stores.fault_modes
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m "not apart and not stand_in and not node" $(if $(CI),-p no:randomly)

test-fast: setup check kernels
	$(BIN)/pytest -n auto --dist loadfile --no-loadscope-reorder -m "not real and not apart"

# Long tests that add little to the gate: benchmarks run small, the test servers by themselves, a broker behind a bad network.
test-apart: setup
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder -m apart

# The chart and the recipes on a real Kubernetes API server, which Go builds (tests/kube). The gate has all but Helm 4, and of
# releases that come and go the largest two.
kube-test: setup
	$(BIN)/pytest -n 2 --dist loadfile tests/kube

# The tests' workers and the processes that they start would else compile the same kernels, each for itself.
kernels: setup
	@$(BIN)/tiered-sidecar prepare

# Workers that find no bytecode of the tests would make it, each for itself.
collected: setup
	@$(BIN)/pytest --collect-only -qq >$(VENV)/collected.txt || { cat $(VENV)/collected.txt; exit 1; }

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.prose

# How long sentences are, page by page, and how many places break a rule of plain English (tests/prose).
prose: setup
	@$(BIN)/python -m tests.prose --table

# The documentation as a site in build/site. A broken link or a page outside of the navigation is an error.
$(SITE_STAMP): requirements-docs.lock $(STAMP)
	$(BIN)/pip install --quiet --no-compile --disable-pip-version-check --no-deps --require-hashes -r requirements-docs.lock
	@touch $@

docs: $(SITE_STAMP)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo 'Read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/site'

# The same comparisons with Kafka's own classes as in `make test`, on many more random logs; and of the engine with the
# plain reference, more than a thousand for each strategy.
conformance: setup
	CONFORMANCE_LOGS=2400 $(BIN)/pytest tests/oracle/test_snapshot_conformance.py tests/compaction/test_against_kafka.py
	CONFORMANCE_LOGS=3200 $(BIN)/pytest tests/compaction/test_engine.py

# Random histories of a partition and its archive, with every store call failing in every way, compared with a plain model
# (tests/histories). It prints figures, and each finding as short as it can be. The gate runs the first few, and all regressions.
HISTORIES ?= 5000
SEED ?= 1
histories: setup
	$(BIN)/python -m tests.histories --histories $(HISTORIES) --seed $(SEED) --jobs $(WORKERS)

# The whole archiving process in virtual time, with segments that are offset ranges instead of bytes (tests/simulation). It prints
# figures, and each finding as short as it can be. The gate runs the first few, and has it find known bugs.
SCHEDULES ?= 10000
simulate: setup
	$(BIN)/python -m tests.simulation --schedules $(SCHEDULES) --seed $(SEED) --jobs $(WORKERS)

# Three brokers, three sidecars and one S3 store, of which leaders move, brokers and sidecars are killed, brokers sleep and the store
# is away a minute at a time, for SOAK_SECONDS and by the dice of SOAK_SEED; at the end everything is compared. It prints its figures.
SOAK_SECONDS ?= 600
SOAK_SEED ?= 1
soak: setup
	SOAK_SECONDS=$(SOAK_SECONDS) SOAK_SEED=$(SOAK_SEED) $(BIN)/pytest -s tests/real/test_leadership.py -k whatever_happens

# One broker of each version, bounced and killed while producers of all kinds write; and one open transaction each.
matrix: setup
	SOAK_VERSIONS="2.7.2 3.9.1 4.3.0 4.4.0" SOAK_BOUNCES=4 $(BIN)/pytest -s tests/real/test_soak_versions.py

# Restores of a live broker's archive into a fresh broker of each version, and kill -9 at many more random points than in `make test`.
restore-matrix: setup
	RESTORE_MATRIX=2.7.2,3.9.1,4.3.0,4.4.0 RESTORE_KILLS=20 $(BIN)/pytest tests/real/test_restore.py tests/real/test_restore_live.py tests/real/test_restore_kills.py

# All S3 servers of tests/servers/stores.py instead of three, and all faults of tests/stores/fault_modes.py. It brings the servers from
# Maven Central, the Go proxy, crates.io and PyPI, and writes the measured tables of docs/reference/object-stores.md.
store-matrix: setup
	STORE_MATRIX=all $(BIN)/pytest -v tests/storage/test_store_contract.py tests/stores --ignore tests/stores/test_faults.py
	$(BIN)/python -m tests.stores.page

# The container image, as Docker or Podman would build it; the next two need neither (root, Debian's buildah, bubblewrap, mmdebstrap).
image:
	docker build --tag tiered-sidecar:$(VERSION) --build-arg VERSION=$(VERSION) --build-arg REVISION=$$(git rev-parse HEAD) --build-arg CREATED=$$(git log -1 --format=%cI) .

image-test: setup
	$(BIN)/python -m tests.image.check --compressed

# The chart and the image on a Kubernetes node that runs pods, in namespaces of its own: 20 minutes after the first time. It needs root
# and Debian packages, which it names. KUBE_NODE is for pytest, such as `-k demo`; `up` keeps the node, and reads such lines.
KUBE_NODE ?=
kube-node-test: setup
	$(BIN)/python -m tests.kube_node $(KUBE_NODE)

# Strimzi's operator and the injection on an API server. STRIMZI_OPERATOR_LIBS: the directory of its jars (docs/contributing/testing.md).
kube-strimzi-test: setup
	$(BIN)/pytest -k operator tests/kube/test_strimzi.py

# What the image has, into build/sbom: Python packages and Spark's jars; with root, buildah and mmdebstrap also Debian's packages.
sbom: setup
	$(BIN)/python -m tests.image.sbom

# What the image has, with licences, into NOTICE.
notice: setup
	$(BIN)/python -m tests.release.notice

# The source archive and the wheel, into build/dist, checked as PyPI does.
dist: setup
	$(BIN)/python -m tests.release.dist

# Whether the tag TAG may be published (docs/contributing/release.md).
release-check: setup
	@$(BIN)/python -m tests.release.versions check $(TAG)

# What is written from others: the schema of the chart's values, the recipes of `k8s render`, the chart's page.
chart: setup
	$(BIN)/python -m tests.helm.charts

# Pictures of the status page in docs/images, from the real program, with a directory that grows for an hour on a fast clock: five minutes.
screenshots: setup
	$(BIN)/python -m tests.page.screenshots

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock:
	uv pip compile pyproject.toml --extra dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements.lock
	uv pip compile pyproject.toml -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header --no-annotate -o requirements-image.lock
	uv pip compile --group docs -c requirements.lock --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links --no-header -o requirements-docs.lock

clean:
	rm -rf $(VENV) .cache .pytest_cache .mypy_cache .ruff_cache build *.egg-info
