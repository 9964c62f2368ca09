# Every target sets up what it needs: an environment in .venv with all that the project uses.
.PHONY: help test lint format demo parity study course setup test-paddle clean
.DEFAULT_GOAL := help

BIN := .venv/bin
READY := .venv/ready
PADDLE := .venv-paddle/ready
export PYTHONDONTWRITEBYTECODE :=
# Processes of one thread each are faster here than one of many: most tests are small. Some wait for
# others that they have started, so one more than two cores. A file stays together, with what it made.
# A process that is lost ends the run with the name of its test: xdist would wait for it forever.
WORKERS ?= 3

help:
	@echo "make demo         set up, and run the main job: learn to read handwriting and show how good it is"
	@echo "make parity       set up, and compare outputs with timm, transformers and torchvision"
	@echo "make study        set up, run all studies of the papers' claims (an hour or two), and write docs/study-results.md"
	@echo "make course       set up, and write the course and the documentation as pages, to runs/course"
	@echo "make test         set up, and run all tests"
	@echo "make lint         set up, and check format, style, types and import rules"
	@echo "make format       put the code into the agreed format"
	@echo "make test-paddle  prove the paddle format against PaddleClas, in an environment of its own"
	@echo "make clean        remove the environments and all that tools leave behind"

setup: $(READY)

$(READY): pyproject.toml constraints.txt tools/setup.sh tools/browser.sh
	@bash tools/setup.sh .venv
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@bash tools/browser.sh
	@touch $@

test: $(READY)
	@OMP_NUM_THREADS=1 $(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder \
		--max-worker-restart 0

lint: $(READY)
	@$(BIN)/ruff format --check --quiet
	@$(BIN)/ruff check --quiet
	@$(BIN)/mypy --no-error-summary
	@$(BIN)/lint-imports > .venv/lint-imports.log || (cat .venv/lint-imports.log; false)
	@echo "lint: format, style, types and import rules are kept"

format: $(READY)
	@$(BIN)/ruff format
	@$(BIN)/ruff check --fix

demo: $(READY)
	@echo "== Learn to read real handwriting on real photographs: about two minutes on two cores"
	@rm -rf runs/demo && $(BIN)/vitreous train handwriting --epochs 10 --out runs/demo
	@echo && echo "== Measured on digits and photographs that it has not seen"
	@$(BIN)/vitreous evaluate runs/demo
	@echo && echo "== Read ten pictures, and see what decides" && rm -rf runs/demo-pictures runs/demo-explained
	@$(BIN)/python examples/save_images.py handwriting runs/demo-pictures
	@$(BIN)/vitreous predict runs/demo runs/demo-pictures
	@$(BIN)/vitreous explain runs/demo runs/demo-pictures/7-7.png --out runs/demo-explained --no-page
	@echo && echo "== The ViT of the paper, small enough to look at every number, alive in one page"
	@rm -rf runs/digits && $(BIN)/vitreous train digits --recipe digits-vit --out runs/digits
	@$(BIN)/vitreous export runs/digits runs/digits.html --force \
		&& echo "Open it, and draw a digit: file://$(CURDIR)/runs/digits.html" \
		|| echo "There is no page this time; everything else is done."

parity: $(READY)
	@$(BIN)/python examples/parity.py

study: $(READY)
	@for file in studies/*.toml; do name=$$(basename $$file .toml); \
		$(BIN)/vitreous study $$name --out runs/studies/$$name || exit 1; done
	@$(BIN)/python tools/study_results.py runs/studies/*

course: $(READY)
	@$(BIN)/vitreous course runs/course

$(PADDLE): Makefile
	@bash tools/setup.sh .venv-paddle
	@.venv-paddle/bin/python -m pip install --quiet paddlepaddle==3.3.1 requests tqdm
	@.venv-paddle/bin/python -m pip install --quiet --no-deps paddleclas==2.6.0
	@touch $@

test-paddle: $(READY) $(PADDLE)
	@$(BIN)/python -m pytest tests/parity/test_paddle.py

clean:
	@rm -rf .venv .venv-paddle build dist *.egg-info .pytest_cache .ruff_cache .mypy_cache \
		.import_linter_cache .hypothesis
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
