# Both commands make their own environment in .venv when there is none; PYTHON names the interpreter to start from.
PYTHON ?= python3
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test check clean

demo: $(READY)
	$(VENV)/bin/cfe-faiss demo

test: $(READY)
	$(VENV)/bin/python -m pytest

check: $(READY)
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --disable-pip-version-check --quiet -c constraints.txt -e ".[all,integrations,dev]"
	touch $@

clean:
	rm -rf $(VENV) demo-output
