# The two commands of the README. Each sets up its own .venv; nothing else is needed
# than Python 3.11 to 3.13.
#
#   make race     the main experiment in every engine that can be installed
#                                                  (EPOCHS=30 for the whole of it)
#   make test     style, types, and every test     (ARGS="-k layers" for some)
#   make docs     the documentation site, in site/
#   make wheel    what is published, in dist/, tried in an empty environment

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only, no word about indexes and versions of pip.
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
EPOCHS ?= 3
# Each is tried by itself: the race goes on without those that cannot be had.
RIVALS := torch==2.13.0 tensorflow-cpu==2.21.* keras==3.15.* jax==0.10.*

.PHONY: race rivals test check style docs wheel clean

# Tables on the screen; results and report.html in a new folder of race-results.
race: $(VENV)/core.done rivals
	$(BIN)/ganglion race mnist-mlp --epochs $(EPOCHS) $(ARGS)

rivals: $(VENV)/core.done
	@test -e $(VENV)/rivals.done || { \
	  echo "Installing Keras, TensorFlow, PyTorch and JAX to race with (minutes) ..."; \
	  missing=; \
	  for one in $(RIVALS); do $(PIP) "$$one" || missing="$$missing $$one"; done; \
	  if test -n "$$missing"; then \
	    echo "Could not be installed, the race goes on without:$$missing"; \
	  else touch $(VENV)/rivals.done; fi; }

# Types are checked beside the tests, and told of after them. Bytecode is kept, whatever
# the shell says: hundreds of processes import the package, in half of their time.
test: export PYTHONDONTWRITEBYTECODE :=
test: style
	@$(BIN)/mypy > $(VENV)/mypy.log 2>&1 & checking=$$!; \
	$(BIN)/python -m pytest -n auto --dist worksteal -rs $(ARGS); tested=$$?; \
	wait $$checking; checked=$$?; cat $(VENV)/mypy.log; \
	test $$tested -eq 0 && test $$checked -eq 0

check: style
	$(BIN)/mypy

style: $(VENV)/dev.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check

docs: $(VENV)/docs.done
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "In site/; to look at it: $(BIN)/python -m http.server --directory site"

$(VENV)/docs.done: pyproject.toml | $(BIN)/python
	@echo "Installing Ganglion and MkDocs ..."
	@$(PIP) --editable '.[docs,images,sklearn]'
	@touch $@

# The wheel and nothing else, with what it needs, in an environment of its own.
wheel: $(VENV)/dev.done
	rm -rf dist
	@$(PIP) build
	$(BIN)/python -m build
	@smoke=$$(mktemp -d) && trap 'rm -rf "$$smoke"' EXIT && \
	$(PYTHON) -m venv "$$smoke" && \
	"$$smoke/bin/python" -m pip install --quiet --disable-pip-version-check dist/*.whl && \
	"$$smoke/bin/ganglion" doctor && \
	"$$smoke/bin/python" -P tests/support/smoke.py "$$smoke"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Ganglion needs Python 3.11 to 3.13; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.done: pyproject.toml | $(BIN)/python
	@echo "Installing Ganglion (NumPy, llvmlite, h5py, Pillow and a few small packages) ..."
	@$(PIP) --editable '.[images]'
	@touch $@

# The rivals (Keras, TensorFlow, PyTorch, JAX) are needed by the parity tests alone:
# where they cannot be installed, those tests are skipped and say so. So it is with Ray.
$(VENV)/dev.done: pyproject.toml | $(BIN)/python
	@echo "Installing Ganglion and the tools of its tests ..."
	@$(PIP) --editable '.[dev,images]'
	@echo "Installing Keras, TensorFlow, PyTorch and JAX to compare with (minutes) ..."
	@$(PIP) torch==2.13.0 && $(PIP) --editable '.[rivals]' \
	  || echo "The rivals could not be installed: tests against them will be skipped."
	@$(PIP) --editable '.[ray]' \
	  || echo "Ray could not be installed: tests on a cluster will be skipped."
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
