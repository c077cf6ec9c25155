# Every target installs what it needs; a second call starts at once.
SHELL := /bin/bash
VENV  := .venv
BIN   := $(VENV)/bin
# Two workers on two cores, each with neighbouring tests, which share a broker; the fast tests once more as plain Python,
# straight from the sources.
# With the same hashes, the same seed gives the same simulation in every run.
PYTEST := PYTHONHASHSEED=0 $(BIN)/python -m pytest --basetemp=build/tests --dist worksteal
WORKERS ?= 2
# The fast tests wait half of their time, for brokers and time-outs.
CHECK_WORKERS ?= 4
ARGS ?=
# pytest ends with code 5 if no test is selected. ARGS may name slow tests only.
OR_NOTHING_SELECTED = { code=$$?; [ $$code = "$(if $(strip $(ARGS)),5)" ] || exit $$code; }
# Without the files of compiled bytecode each worker, and each broker that a test starts, would compile all modules.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup sources run demo cluster demo-migration test check lint bench interop soak format messages docs console-docs dist lock clean
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: ## create .venv with everything; as root on Debian, also install Java, PostgreSQL, Chromium and Kerberos
	@tools/install --dev

run: ## run a broker in the foreground: localhost:9092, data in ./barnabas-data
	@tools/install
	@exec $(BIN)/barnabas start $(ARGS)

demo: setup ## run a broker and three pipelines on Spark, with one hour of events of a shop: about a minute; needs Java 17
	@$(BIN)/python -m demo $(ARGS)

cluster: setup ## run a ZooKeeper and three brokers on this machine until Ctrl-C: ports 9092 to 9094; needs Java 17
	@$(BIN)/python -m demo.cluster $(ARGS)

demo-migration: setup ## move three brokers of Apache Kafka 3.9.1 to Barnabas and back, under load; needs Java 17 and Maven
	@$(BIN)/python -m demo.migration $(ARGS)

test: setup lint ## check format, lint, types and imports; run all tests compiled, then the fast tests uncompiled
	$(PYTEST) -n $(WORKERS) $(ARGS)
	PYTHONPATH=src $(PYTEST) -n $(WORKERS) -m "not slow" $(ARGS) || $(OR_NOTHING_SELECTED)

check: sources lint ## check format, lint, types and imports; run the fast tests from the sources: about a minute
	PYTHONPATH=src $(PYTEST) -q -n $(CHECK_WORKERS) -m "not slow"

# What runs from src does not wait until the package is compiled again.
sources:
	@tools/install --sources

lint: sources
	@mkdir -p build
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	PYTHONPATH=src $(BIN)/lint-imports

bench: ## run the benchmarks and compare with the peers; ARGS="codec log" selects tables
	@tools/install --bench
	$(BIN)/python -m bench $(ARGS)

interop: setup ## test clients of other languages and Kafka's tools: kcat, Java, franz-go, KafkaJS; downloads them from their registries
	BARNABAS_INTEROP=1 $(PYTEST) tests/interop $(ARGS)

soak: setup ## run all long fault tests, and histories of clients and brokers that are killed
	BARNABAS_SOAK=1 $(PYTEST) -n $(WORKERS) -m slow $(ARGS)

format: setup ## format the code with ruff
	$(BIN)/ruff format --quiet .
	$(BIN)/ruff check --fix --quiet .

messages: setup ## regenerate the message types and their compiled codecs from the schema facts
	PYTHONPATH=src $(BIN)/python -m tools.messages
	PYTHONPATH=src $(BIN)/python -m tools.native_codecs

# From the sources, which have all types and need not be compiled first.
docs: ## build the site with all docs and the reference: build/site/index.html
	@tools/install --docs
	@NO_MKDOCS_2_WARNING=1 PYTHONPATH=src $(BIN)/python -m mkdocs build --strict --quiet
	@echo "Open build/site/index.html"

console-docs: setup ## write the docs that come from the console: its API, its Grafana dashboard and, with Chromium, screenshots
	$(BIN)/python -m tools.console_docs api
	$(BIN)/python -m tools.console_docs screenshots

dist: ## build an sdist and a compiled wheel for each Python that is installed, and try each in an empty environment
	$(or $(PYTHON),python3) -m tools.dist $(ARGS)

lock: ## select the newest dependencies and pin them (needs uv)
	uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/dev.in -o requirements/dev.txt
	uv pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/dev.txt requirements/run.in -o requirements/run.txt
	uv pip compile -q --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate -c requirements/dev.txt requirements/build.in -o requirements/build.txt
	uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/gssapi.in -o requirements/gssapi.txt
	uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/bench.in -o requirements/bench.txt
	uv pip compile -q --upgrade --python-version 3.11 --universal --generate-hashes --no-emit-index-url --no-header --no-annotate requirements/docs.in -o requirements/docs.txt

clean: ## remove .venv and build
	rm -rf $(VENV) build
