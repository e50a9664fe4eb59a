.PHONY: setup proto
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
PIP = .venv/bin/python -m pip --disable-pip-version-check --quiet

setup: .venv/ready
.venv/ready: pyproject.toml
	@test -n "$(PYTHON)" || { echo "setup: PopMQ needs Python 3.11 or newer on the PATH"; exit 1; }
	@echo "setup: making .venv with $(PYTHON)"
	@$(PYTHON) -m venv .venv
	@echo "setup: installing popmq[all] and the tools (PySpark is large: a few minutes the first time)"
	@$(PIP) install --upgrade pip
	@$(PIP) install --editable '.[all]' --group dev
	@touch $@

proto: setup
	@.venv/bin/python proto/generate.py
