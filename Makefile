# make demo   shows what fedlocal does, in under three minutes
# make test   runs the tests
# make thorough  runs those that take longer, too
# make check  format, lint, types
# Each makes its own virtual environment in .venv; nothing else is needed than Python 3.11+ and make.

PYTHON ?= python3
export PYTHONDONTWRITEBYTECODE =  # the tests start many processes; each would compile every module again
VENV := .venv
READY := $(VENV)/.ready

.PHONY: demo test thorough check format benchmark clean

demo: $(READY)
	$(VENV)/bin/fedlocal demo

test: $(READY)
	$(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

thorough: $(READY)
	JAX_DISABLE_MOST_OPTIMIZATIONS=0 $(VENV)/bin/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "thorough or not thorough"

check: $(READY)
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/basedpyright

format: $(READY)
	$(VENV)/bin/ruff format .
	$(VENV)/bin/ruff check --fix .

benchmark: $(READY)
	$(VENV)/bin/python benchmarks/engines.py
	$(VENV)/bin/python benchmarks/sweeps.py
	$(VENV)/bin/python benchmarks/linear.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c "import sys; assert sys.version_info >= (3, 11), 'fedlocal needs Python 3.11 or newer; set PYTHON=...'"
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	touch $(READY)

clean:
	rm -rf $(VENV) demo
