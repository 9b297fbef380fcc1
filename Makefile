# Each target sets up its own environment; nothing but Python 3.11+, a C compiler and a package
# index is needed. `make PYTHON=python3.13 test` chooses the interpreter.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := $(shell find src -type f -not -name '*.pyc') pyproject.toml meson.build

.PHONY: demo test coverage lint docs pages bench fuzz soak sanitize cross clean

demo: $(VENV)/demo
	$(BIN)/marginpursuit demo --output out

# One process per processor. The coverage of lines and branches takes half as long again.
# docs/gallery is written by `make docs`, which runs its examples.
TESTS = -n auto --dist worksteal --doctest-modules --doctest-glob='*.md' --ignore=docs/gallery \
	--pyargs marginpursuit tests docs README.md
test: $(VENV)/installed
	$(BIN)/python -m pytest $(TESTS)

coverage: $(VENV)/installed
	$(BIN)/python -m pytest --cov $(TESTS)

lint: $(VENV)/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# The documentation site, in out/site; warnings are errors. The examples of the gallery run.
docs: $(VENV)/docs
	$(BIN)/codespell --config .codespellrc
	$(BIN)/python -m sphinx --fail-on-warning --keep-going -b html docs out/site

# Every page in a browser at 390 and 1280 px: width, images, errors of the console. Needs chromedriver.
pages: $(VENV)/docs
	$(BIN)/python docs/check_pages.py out/site

bench: $(VENV)/installed
	$(BIN)/python benchmarks/run.py

# Damaged model files, checkpoints and runs: 10^6 cases, or as many as FUZZ_SECONDS allow (2,000 in a
# second of two processors); prints the seed.
FUZZ_SECONDS ?= 1200
fuzz: $(VENV)/installed
	$(BIN)/python -W ignore tests/fuzz_model_files.py --seconds $(FUZZ_SECONDS)
	MARGINPURSUIT_PROBLEMS=10000 $(BIN)/python -m pytest -q tests/test_convergence_property.py

# The kernels in a C program, and called from Python, under sanitizers; minutes, since instrumented
# kernels compile slowly.
sanitize: $(VENV)/installed
	bash tests/harness/run.sh address
	bash tests/harness/run.sh thread
	bash tests/harness/python.sh $(BIN)/python

# The same with other compilers and for other processors; needs clang, musl-gcc, aarch64-linux-gnu-gcc
# with qemu-user, and x86_64-w64-mingw32-gcc. Those for macOS and Windows on Arm are compiled only.
cross: $(VENV)/tools
	$(BIN)/pip install --quiet ziglang
	for target in clang musl aarch64 windows windows-arm macos; do \
		PYTHON=$(BIN)/python bash tests/harness/run.sh $$target || exit; done

# Fits, searches, updates and files with faults (killed workers, full disk, signals, little memory) for
# SOAK_MINUTES, and at least one episode of each kind; prints the seeds.
SOAK_MINUTES ?= 60
soak: $(VENV)/installed
	$(BIN)/python tests/soak.py --minutes $(SOAK_MINUTES)

clean:
	rm -rf $(VENV) build out .coverage .hypothesis .mypy_cache .pytest_cache .ruff_cache .import_linter_cache

# The package is installed as its users install it (a wheel, not a link into src), incrementally. The
# environment of `demo` has no tools for development; that of the other targets has what `demo` needs.
INSTALL = PATH="$(abspath $(BIN)):$$PATH" $(BIN)/pip install --quiet --no-build-isolation -C build-dir=build/$(notdir $(VENV))

$(VENV)/installed: $(VENV)/tools $(SOURCES)
	$(INSTALL) ".[dev]"
	touch $@ $(VENV)/demo

$(VENV)/docs: $(VENV)/tools $(SOURCES)
	$(INSTALL) ".[docs]"
	touch $@ $(VENV)/demo

$(VENV)/demo: $(VENV)/tools $(SOURCES)
	$(INSTALL) ".[demo]"
	touch $@

$(VENV)/tools:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet meson-python 'Cython>=3.1' ninja
	touch $@
