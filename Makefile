# Two commands for a fresh machine: `make demo` and `make test`. Everything they need is set up here.
PYTHON ?= python3
PYTHONS ?= $(PYTHON)
VENV   ?= .venv
BIN    := $(VENV)/bin
# What answers need, and beyond it what tests, checks and pages need.
ANSWER := $(VENV)/.answer
CORE   := acceptance/test_files acceptance/test_models acceptance/test_oracle base/test_schema \
          cli/test_errors cli/test_live cli/test_models cli/test_plot cli/test_recommend \
          importers/test_gguf questions/test_explore questions/test_sweep \
          questions/test_sweep_grids render/test_charts render/test_page \
          specs/test_hardware_profiles test_docs test_lazy_imports test_pass_properties \
          test_properties timing/test_law_properties
# What finds most mistakes in a minute or two.
QUICK  := acceptance/test_tokens_per_step advice/test_decide advice/test_engine_flags \
          advice/test_rules base/test_schema cli/test_errors cli/test_live cli/test_memory \
          cli/test_recommend importers/test_parameter_counts kernels/test_ops questions/test_goals \
          questions/test_schedule specs/test_catalogue specs/test_hardware_profiles test_docs \
          test_imports test_lazy_imports test_source_rules timing/test_kernel_law timing/test_step \
          workshop/test_model_specs
READY  := $(VENV)/.ready

.PHONY: demo test quick lint types wheel packages site check torch calibrate sanity docs bench goldens models figures browser engines-texts engines minimums audit fuzz torture clean

$(ANSWER): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable .
	touch $(ANSWER)

$(READY): $(ANSWER)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[test,lint,docs]" build
	touch $(READY)

demo: $(ANSWER)       ## Answer the question on a real model and GPU
	$(BIN)/roofline recommend llama-3.1-8b --gpu h100-sxm --batch 32 --context 2k

quick: $(READY)       ## The tests that find most mistakes in a minute or two
	$(BIN)/python -m pytest -q -n auto --dist loadfile $(QUICK:%=tests/%.py)

test: $(READY)        ## About five minutes on two cores. Unit tests, property tests and doctests
	$(BIN)/python -m pytest -q -n auto --dist loadfile

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

wheel: $(READY)       ## Build, install into a fresh environment, run from outside the tree
	$(BIN)/python tests/check_wheel.py

packages: $(READY)    ## Wheel, sdist and pipx in fresh environments: make packages PYTHONS="python3.11 python3.13"
	$(BIN)/python -m tests.check_packages $(PYTHONS)

site: $(READY)        ## The documentation as a site; every link is checked
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

check: lint types wheel site ## Everything a change must pass
	$(BIN)/python -m pytest -q -n auto --dist loadfile --cov=roofline --cov-report=term:skip-covered
	$(BIN)/coverage json -q --fail-under=0 -o - | $(BIN)/python tests/check_branches.py 95

torch: ## The tests of the PyTorch kernels, in an environment of their own (CPU build); adds to check's coverage
	$(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip install --quiet --disable-pip-version-check --editable ".[test]" torch==2.13.0
	$(VENV)-torch/bin/python -m pytest -q --cov=roofline --cov-append --cov-fail-under=0 \
	  --cov-report=term:skip-covered \
	  tests/calibrate/test_measure_kernels.py tests/calibrate/test_measure_experts.py

browser: $(READY)     ## The report's page in headless Chromium; skipped where there is none
	@command -v chromium >/dev/null || if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } >/dev/null \
	  || echo "make browser: Chromium could not be installed, so its tests are skipped"; fi
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[browser]" \
	  || echo "make browser: Playwright could not be installed, so its tests are skipped"
	$(BIN)/python -m pytest -q tests/render/test_page_in_browser.py

engines-texts: $(READY) ## What is written for vLLM and SGLang, through their own code (under six minutes)
	$(BIN)/python -m workshop.proof

engines: engines-texts ## Also real servers on this machine's processor, read beside what their client counts (an hour)
	$(BIN)/python -m workshop.proof.servers
	$(BIN)/python -m workshop.proof.llamacpp

calibrate: $(READY)   ## Fit all laws to the public kernel tables again, and rewrite what follows
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[tables]"
	$(BIN)/python -m workshop.import_tables
	$(BIN)/python -m workshop.engines
	$(BIN)/python -m workshop.validation_page

sanity: $(READY)      ## Price millions of points and count what physics forbids (about 10 minutes)
	$(BIN)/python -m workshop.sanity --guards

docs: $(READY)        ## Refresh the outputs that the pages show
	$(BIN)/python -m tests.test_docs
	$(BIN)/python -m tests.test_public_answers

figures: $(READY)     ## Draw the figures of the pages anew, each with its numbers
	$(BIN)/python -m tests.test_figures

bench: $(READY)       ## Cold-start and throughput figures (never part of the tests)
	$(BIN)/python benchmarks/cold_start.py
	$(BIN)/python benchmarks/advice.py
	$(BIN)/python benchmarks/sweep.py
	$(BIN)/python -m benchmarks.loads
	$(BIN)/python -m benchmarks.tune

goldens: $(READY)     ## Compare what commands print here and at a commit: make goldens BASE=main
	$(BIN)/python -m workshop.goldens --base $(or $(BASE),HEAD)

models: $(READY)      ## Write model_specs/ anew from the published configs in model_configs/
	$(BIN)/python -m workshop.model_specs

minimums: ## The core tests with the oldest dependencies allowed; docs/reference.md shows the newest
	$(PYTHON) -m venv $(VENV)-minimums
	$(VENV)-minimums/bin/python -m pip install --quiet --disable-pip-version-check \
		--constraint tests/minimums.txt --editable ".[report,parquet,distributed]" pytest hypothesis mpmath
	$(VENV)-minimums/bin/python -m pytest -q -W ignore::DeprecationWarning \
		-W ignore::PendingDeprecationWarning --deselect \
		tests/test_docs.py::test_the_reference_is_what_the_commands_say_of_themselves \
		$(CORE:%=tests/%.py)

audit: $(READY)      ## Known vulnerabilities of what is installed; fails where none can be looked up
	$(PYTHON) -m venv $(VENV)-audit
	$(VENV)-audit/bin/python -m pip install --quiet --disable-pip-version-check pip-audit
	$(BIN)/python -m pip freeze --exclude-editable > $(VENV)-audit/installed.txt
	$(VENV)-audit/bin/pip-audit --strict --no-deps --disable-pip -r $(VENV)-audit/installed.txt

fuzz: $(READY)        ## Ten minutes of coverage-guided fuzzing of every parser
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[fuzz]"
	$(BIN)/python -m tests.fuzz --minutes 10

torture: $(READY)     ## Kill every command that writes, 200 times
	$(BIN)/python -m tests.torture --times 200

clean:
	rm -rf $(VENV) $(VENV)-torch $(VENV)-minimums $(VENV)-audit $(VENV)-engines $(VENV)-engines-server $(VENV)-engines-llamacpp dist build .pytest_cache .mypy_cache .ruff_cache
