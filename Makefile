# Every target does its own set-up: a virtual environment in .venv, with the versions of constraints.txt.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: demo test soak bench lint lock clean

demo: $(READY)
	@$(BIN)/fairway demo

test: $(READY)
	@$(MAKE) --no-print-directory lint
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m "not soak"

soak: $(READY)
	@FAIRWAY_SOAK=1 $(BIN)/python -m pytest -n 2 --dist loadfile

bench: $(READY)
	@$(BIN)/python -m bench

lint: $(READY)
	@$(BIN)/ruff check .
	@$(BIN)/lint-imports --no-cache --config pyproject.toml
	@$(BIN)/mypy

lock:
	uv pip compile --quiet --universal --no-emit-index-url --no-header --no-annotate --group dev pyproject.toml -o constraints.txt

clean:
	rm -rf $(VENV)

# uv where it is there (seconds), pip otherwise; a pip that comes with Python 3.11 knows no dependency groups.
$(READY): pyproject.toml constraints.txt
	@echo "setting up $(VENV) (once; half a minute)"
	@if command -v uv >/dev/null; then uv venv --quiet --allow-existing --python $(PYTHON) $(VENV) \
	  && uv pip install --quiet --compile-bytecode --python $(BIN)/python -c constraints.txt -e . --group dev; \
	else $(PYTHON) -m venv $(VENV) && $(BIN)/pip install --quiet --upgrade "pip>=25.1" \
	  && $(BIN)/pip install --quiet -c constraints.txt -e . --group dev; fi
	@$(BIN)/python -m compileall -q src
	@touch $@
