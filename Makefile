# Every task of the project. `make run` needs Python alone; `make test` and `make demo` also need
# Java 17 or newer, for ZooKeeper and Spark. Nothing is installed outside .venv, except by `make test`
# the Debian package of a browser, where it is root.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# `make test` sets things up side by side; all else is done in its order.
ifdef SIDE_BY_SIDE
prometheus: | chromium  # apt works for one at a time
else
.NOTPARALLEL:
endif

VENV := .venv
BIN := $(VENV)/bin
PACKAGES := api bookie broker ledgers spark_connector
SOURCES := $(shell find $(PACKAGES) -name '*.py')
EXTRAS := compression,spark,test
OLDEST := $(VENV)/oldest-spark
OLDEST_SPARK := 4.0.5
OLDEST_PY4J := 0.10.9.9
OLDEST_INSTALLED := $(OLDEST)/.installed-$(OLDEST_SPARK)

# The first interpreter that is new enough; `make PYTHON=/path/to/python …` chooses another one.
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
	&& echo $$python && break; done)

# Spark comes as sources, of which pip makes a wheel: to compress it takes longer than all the rest.
STORED := DIST_EXTRA_CONFIG='$(CURDIR)/$(VENV)/wheels.cfg'

PIP := $(STORED) $(BIN)/python -m pip --disable-pip-version-check --quiet
# The build tool is pinned and installed first, so that no second environment is made to build in.
PIP_INSTALL := $(PIP) install --constraint constraints.txt --no-build-isolation

.PHONY: help
help:  ## Say what can be done here
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# -- running ---------------------------------------------------------------------------------------

# COMPILED=1 with run, demo, bench or drills takes compiled modules.
ifeq ($(COMPILED),1)
WITH := PYTHONPATH=$(CURDIR)/build/compiled
run demo bench drills: build/compiled/.built
endif

.PHONY: run
run: $(VENV)/.compiled  ## Start the service on http://127.0.0.1:8080 (ARGS="--http … --data …")
	@$(WITH) exec $(BIN)/fencelog standalone $(ARGS)

.PHONY: demo
demo: java $(VENV)/.installed-all $(VENV)/.compiled  ## Real logs through a real cluster and Spark (LOGS=DIR)
	@$(WITH) exec $(BIN)/fencelog demo $(if $(LOGS),--logs "$(LOGS)") $(ARGS)

.PHONY: bench
bench: $(VENV)/.compiled  ## Measure this machine (ARGS="--seconds 5 --json")
	@$(WITH) $(BIN)/fencelog bench ledger $(ARGS)
	@$(WITH) $(BIN)/fencelog bench bookie $(ARGS)
	@$(WITH) $(BIN)/fencelog bench http $(ARGS)
	@$(WITH) $(BIN)/fencelog bench fanin $(ARGS)
	@$(WITH) $(BIN)/fencelog bench routes $(ARGS)
	@$(WITH) $(BIN)/fencelog bench read $(ARGS)

.PHONY: bench-compiled
bench-compiled: build/compiled/.built  ## Measure what compiled modules save (TOPICS="10 1000")
	@$(BIN)/python -m tests.bench.compiled_cost $(TOPICS)

.PHONY: test-compiled
test-compiled: build/compiled/.built  ## Play histories in both forms, and compare them (SEEDS=200 KIND=topics)
	@$(BIN)/python -m tests.conformance.compiled_traces --seeds $(or $(SEEDS),200) \
	  --kind $(or $(KIND),all) $(ARGS)

# Spark's connector for Kafka is of the same version as Spark.
KAFKA := build/kafka
KAFKA_SPARK := 4.1.1
KAFKA_INSTALLED := $(KAFKA)/spark/.installed-$(KAFKA_SPARK)
.PHONY: bench-kafka
bench-kafka: java $(KAFKA_INSTALLED) $(VENV)/.compiled $(KAFKA)/.jars  ## Measure Spark's connector for Kafka beside ours (needs Maven; MESSAGES=4000000)
	@$(KAFKA)/spark/bin/python -m tests.bench.kafka_connector $(KAFKA) $(or $(MESSAGES),2000000)

$(KAFKA_INSTALLED): $(VENV)/.installed-all
	$(call install_spark,$(KAFKA)/spark,$(KAFKA_SPARK))
	@touch $@

$(KAFKA)/.jars: $(wildcard tests/bench/kafka/*.xml)
	@echo "Fetching a Kafka broker and Spark's connector for it into $(KAFKA)"
	@for part in server connector; do \
	  mvn -q -B -f tests/bench/kafka/$$part.xml dependency:copy-dependencies \
	    -DincludeScope=runtime -DoutputDirectory='$(CURDIR)/$(KAFKA)'/$$part || exit 1; done
	@touch $@

.PHONY: bench-audit
bench-audit: $(VENV)/.installed-all  ## Audit 10,000, 30,000 and 100,000 ledgers (LEDGERS="1000 5000")
	@$(BIN)/python -m tests.bench.audit_scale $(LEDGERS)

.PHONY: bench-metrics
bench-metrics: $(VENV)/.installed-all  ## Scrape /metrics of 1,000, 10,000 and 30,000 topics (TOPICS="1000 5000")
	@$(BIN)/python -m tests.bench.metrics_cost $(TOPICS)

.PHONY: pictures
pictures: java chromium $(VENV)/.installed-all  ## Make the pictures of the console anew (look at them)
	@$(BIN)/python -m tests.scripts.console_pictures

# -- checking --------------------------------------------------------------------------------------

.PHONY: test
test: java  ## Set everything up and check everything (ARGS= for pytest)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line SIDE_BY_SIDE=1 ready
	@$(MAKE) --no-print-directory pytest

# What takes longest begins first. The whole suite checks types beside its tests.
.PHONY: ready
ready: $(VENV)/.installed-all $(if $(ARGS),typecheck,$(OLDEST_INSTALLED)) chromium prometheus lint $(VENV)/.compiled

.PHONY: pytest
pytest: $(VENV)/.installed-all $(VENV)/.compiled $(if $(ARGS),,$(OLDEST_INSTALLED))  ## Run the tests, and check types beside all of them (ARGS="tests/bookie -k journal")
	@$(BIN)/python -m compileall -q tests
	$(BIN)/python tests/run_suite.py $(ARGS)

# What `make test` leaves out: longer runs, and costly variants of its tests.
.PHONY: thorough
thorough: java  ## Run what `make test` leaves out: longer runs, costly variants
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=line SIDE_BY_SIDE=1 \
	  chromium prometheus $(VENV)/.compiled $(OLDEST_INSTALLED)
	$(BIN)/python tests/run_suite.py --thorough

.PHONY: sim
sim: $(VENV)/.installed-all  ## Play simulated histories (SEEDS=2000 SEED=1 KIND=topics)
	@$(BIN)/python -m tests.sim.run_sim --seeds $(or $(SEEDS),200) --seed $(or $(SEED),1) \
	  --kind $(or $(KIND),all) $(ARGS)

.PHONY: crash
crash: $(VENV)/.installed-all  ## Crash a bookie everywhere, start it on what is left (IMAGE=NAME)
	@$(BIN)/python -m tests.crash.run_crash $(if $(IMAGE),--image $(IMAGE)) $(ARGS)

.PHONY: mutants
mutants: $(VENV)/.installed-all  ## Break each safety rule; the simulator has to notice (SEEDS=2000)
	@$(BIN)/python -m tests.sim.run_mutants $(if $(SEEDS),--seeds $(SEEDS)) $(ARGS)

.PHONY: explore
explore: $(VENV)/.installed-all  ## Search small worlds of the protocol completely (ARGS="--mutants")
	@$(BIN)/python -m tests.explore.run_explore $(ARGS)

.PHONY: contract
contract: $(VENV)/.installed-all  ## Compare service and OpenAPI document (EXAMPLES=100)
	@$(BIN)/python -m tests.strangers.contract.run_contract $(if $(EXAMPLES),--examples $(EXAMPLES)) $(ARGS)

.PHONY: fuzz
fuzz: $(VENV)/.installed-all  ## Send broken input to every parser (INPUTS=1000000 SEED=2)
	@$(BIN)/python -m tests.strangers.fuzz.run_fuzz $(if $(INPUTS),--inputs $(INPUTS)) \
	  $(if $(SEED),--seed $(SEED)) $(ARGS)

.PHONY: drills
drills: java $(VENV)/.compiled  ## Break real clusters in every way; account for every message
	@$(WITH) $(BIN)/fencelog drill all $(ARGS)

.PHONY: spark
spark: java $(VENV)/.installed-all $(VENV)/.compiled $(OLDEST_INSTALLED)  ## All tests on Spark, with costly variants, and on the oldest Spark
	$(BIN)/python -m pytest -m "spark or thorough" tests/spark $(ARGS)
	$(OLDEST)/bin/python -m pytest -m "spark or thorough" tests/spark/test_source.py tests/spark/test_filters.py tests/spark/stream \
	  tests/spark/write/test_writing.py \
	  tests/spark/failures/test_reads_of_a_cluster.py tests/spark/failures/test_tasks.py $(ARGS)

.PHONY: k8s-test
k8s-test: $(VENV)/.installed-all  ## Break an installation on Kubernetes (KUBECONFIG=FILE or K8S_LAB=PROGRAM, SCENARIOS="kill-broker cut-node")
	@$(BIN)/python -m tests.processes.k8s.run_k8s $(SCENARIOS) $(ARGS)

# checkov has 290 MB of its own, and an environment: it is not part of `make test`.
CHECKOV := $(VENV)/checkov
.PHONY: k8s-lint
k8s-lint:  ## Look at the manifests with checkov; k8s/checkov.yaml says what is left out, and why
	@test -x $(CHECKOV)/bin/checkov || { $(PYTHON) -m venv $(CHECKOV) \
	  && $(CHECKOV)/bin/pip install -q checkov==3.3.30; }
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT \
	  && mkdir "$$scratch/protected" && k8s=$$(realpath --relative-to="$$scratch/protected" k8s) \
	  && printf 'resources: [%s/base]\ncomponents: [%s/components/zookeeper-credentials, %s/components/zookeeper-tls]\n' \
	    "$$k8s" "$$k8s" "$$k8s" > "$$scratch/protected/kustomization.yaml" \
	  && for overlay in k8s/base k8s/overlays/dev k8s/overlays/prod k8s/monitoring "$$scratch/protected"; do \
	    kubectl kustomize "$$overlay" > "$$scratch/$$(basename "$$overlay").yaml" || exit 1; done \
	  && for job in k8s/jobs/*.yaml; do \
	    sed s/IMAGE/image:1/ $$job > "$$scratch/$$(basename $$job)"; done \
	  && $(CHECKOV)/bin/checkov --directory "$$scratch" --config-file k8s/checkov.yaml

.PHONY: lint
lint: $(VENV)/.installed-all  ## Check format and style
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

.PHONY: typecheck
typecheck: $(VENV)/.installed-all  ## Check types
	$(BIN)/mypy

.PHONY: format
format: $(VENV)/.installed-all  ## Put the code into its standard form
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

.PHONY: image
image: $(VENV)/.installed-all  ## Make the images of Kubernetes as archives, without a container engine (OUT=build)
	@mkdir -p $(or $(OUT),build)
	@$(BIN)/python k8s/image.py fencelog $(or $(OUT),build)/fencelog.tar $(if $(NAME),--name $(NAME))
	@$(BIN)/python k8s/image.py zookeeper $(or $(OUT),build)/zookeeper.tar

# -- setting up ------------------------------------------------------------------------------------

.PHONY: install
install: $(VENV)/.compiled  ## Install the service alone into .venv

.PHONY: install-all
install-all: $(VENV)/.installed-all  ## Install it with Spark and the tools of the tests (0.5 GB)

$(VENV)/.created:
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found:" \
	  "apt install python3 python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "$(PYTHON) cannot make virtual environments: apt install python3-venv" >&2; exit 1; }
	@echo "Creating $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@printf '[bdist_wheel]\ncompression = stored\n' > $(VENV)/wheels.cfg
	@touch $@

$(VENV)/.installed: $(VENV)/.created pyproject.toml constraints.txt
	@echo "Installing fencelog into $(VENV)"
	@$(PIP_INSTALL) setuptools
	@$(PIP_INSTALL) --editable .
	@touch $@

# Bytecode, also where Python itself is told to write none: without it a start takes twice as long (and
# that of a simulation, before `pytest`, three times).
$(VENV)/.compiled: $(VENV)/.installed $(SOURCES)
	@$(BIN)/python -m compileall -q $(PACKAGES)
	@touch $@

# A wheel for this machine whose hot modules are compiled, and a directory with it (COMPILED=1).
.PHONY: compiled
compiled: build/compiled/.built  ## Compile the modules that appends pass through, with mypyc and a C compiler

build/compiled/.built: $(VENV)/.installed-all setup.py pyproject.toml $(SOURCES)
	@echo "Compiling into build/compiled, which takes minutes"
	@rm -rf build/compiled build/wheels
	@FENCELOG_COMPILED=1 $(PIP) wheel --no-deps --no-build-isolation --wheel-dir build/wheels .
	@$(PIP) install --no-deps --target build/compiled build/wheels/*.whl
	@touch $@

# Spark finds data sources by looking into directories; an editable install puts nothing into them.
$(VENV)/.installed-all: $(VENV)/.installed
	@echo "Installing Spark and the tools of the tests into $(VENV)"
	@$(PIP_INSTALL) --editable '.[$(EXTRAS)]'
	@ln -sfn '$(CURDIR)/spark_connector/pyspark_fencelog' \
	  "$$($(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/pyspark_fencelog"
	@touch $@

# The oldest Spark that is supported, in an environment that takes all else from the first one, which
# may be installed at the same time.
.PHONY: oldest-spark
oldest-spark: $(VENV)/.installed-all $(OLDEST_INSTALLED)  ## Install the oldest Spark beside it, for the tests (0.5 GB)

$(OLDEST_INSTALLED): $(VENV)/.installed
	$(call install_spark,$(OLDEST),$(OLDEST_SPARK))
	@touch $@

define install_spark
	@echo "Installing Spark $(2) into $(1)"
	@$(BIN)/python -m venv --without-pip --clear $(1)
	@$(PIP) --python $(1)/bin/python install --constraint constraints.txt setuptools wheel
	@$(PIP) --python $(1)/bin/python install --no-deps --no-build-isolation \
	  pyspark==$(2) py4j==$(OLDEST_PY4J)
	@purelib='import sysconfig; print(sysconfig.get_path("purelib"))' \
	  && echo "import site; site.addsitedir('$$($(BIN)/python -c "$$purelib")')" \
	  > "$$($(1)/bin/python -c "$$purelib")/fencelog.pth"
endef

.PHONY: java
java:
	@"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -version 2>&1 \
	  | sed -n 's/.* version "\([0-9]*\).*/\1/p' | { read -r major && test "$$major" -ge 17; } \
	  || { echo "Java 17 or newer is needed for ZooKeeper and Spark:" \
	  "apt install openjdk-17-jre-headless (or a newer one)" >&2; exit 1; }

# The browser of the console's tests. Root on Debian gets its package; others are told its name.
.PHONY: chromium
chromium:
	@{ command -v chromium-headless-shell || command -v chromium || command -v chromium-browser; } \
	  >/dev/null \
	  || { test "$$(id -u)" = 0 && command -v apt-get >/dev/null && apt-get update -qq \
	    && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
	      chromium-headless-shell fonts-dejavu-core; } \
	  || { echo "Chromium is needed for the tests of the console:" \
	  "apt install chromium-headless-shell" >&2; exit 1; }

# Prometheus and promtool for the tests of k8s/monitoring: Debian's package, unpacked and not installed,
# so that no service is started. Others are told its name.
.PHONY: prometheus
prometheus: $(VENV)/.created
	@test -x $(VENV)/prometheus/usr/bin/promtool \
	  || { command -v promtool && command -v prometheus; } >/dev/null \
	  || { scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT && chmod 755 "$$scratch" \
	    && { (cd "$$scratch" && apt-get download -qq prometheus 2>/dev/null) \
	      || { test "$$(id -u)" = 0 && apt-get update -qq \
	        && (cd "$$scratch" && apt-get download -qq prometheus); }; } \
	    && dpkg -x "$$scratch"/prometheus_*.deb $(VENV)/prometheus; } \
	  || { echo "Prometheus is needed for the tests of k8s/monitoring: apt install prometheus" >&2; \
	    exit 1; }

.PHONY: constraints
constraints:  ## Resolve constraints.txt anew
	@scratch=$$(mktemp -d) && trap 'rm -rf "$$scratch"' EXIT \
	  && $(PYTHON) -m venv "$$scratch" && "$$scratch/bin/pip" install -q -U setuptools \
	  && "$$scratch/bin/pip" install -q --no-build-isolation --editable '.[$(EXTRAS)]' \
	  && { grep '^#' constraints.txt; "$$scratch/bin/pip" freeze --all --exclude-editable \
	  --exclude pip; } > constraints.new && mv constraints.new constraints.txt

.PHONY: clean
clean:  ## Remove everything that was installed or cached (never ./data)
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis *.egg-info build
	find $(PACKAGES) tests -name __pycache__ -prune -exec rm -rf {} +
