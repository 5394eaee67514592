# The two commands of the README. Each sets up its own .venv; nothing else is needed
# than Python 3.11 to 3.13.
#
#   make race     train the main experiment        (EPOCHS=3 for a shorter run)
#   make test     style, types, and every test     (ARGS="-k layers" for some)

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Twice quiet: errors only, no word about indexes and versions of pip.
PIP := $(BIN)/python -m pip install --quiet --quiet --disable-pip-version-check
EPOCHS ?= 5

.PHONY: race test check clean

race: $(VENV)/core.done
	@echo "The race against the other frameworks is not built yet:"
	@echo "this trains its main recipe, mnist-mlp, in Ganglion alone."
	@echo "(ganglion bench compares the time of a step with installed rivals.)"
	$(BIN)/ganglion train mnist-mlp --epochs $(EPOCHS) --log steps

test: check
	$(BIN)/python -m pytest -n auto -rs $(ARGS)

check: $(VENV)/dev.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
	  || { echo "Ganglion needs Python 3.11 to 3.13; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/core.done: pyproject.toml | $(BIN)/python
	@echo "Installing Ganglion (NumPy, llvmlite, h5py and a few small packages) ..."
	@$(PIP) --editable .
	@touch $@

# The rivals (Keras, TensorFlow, PyTorch, JAX) are needed by the parity tests alone:
# where they cannot be installed, those tests are skipped and say so.
$(VENV)/dev.done: pyproject.toml | $(BIN)/python
	@echo "Installing Ganglion and the tools of its tests ..."
	@$(PIP) --editable '.[dev,images]'
	@echo "Installing Keras, TensorFlow, PyTorch and JAX to compare with (minutes) ..."
	@$(PIP) torch==2.13.0 && $(PIP) --editable '.[rivals]' \
	  || echo "The rivals could not be installed: tests against them will be skipped."
	@touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis
