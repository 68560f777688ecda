# The words that people and CI type. Each makes what it needs first.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
ENV ?= CartPole-v1
ARGS ?=
TEST_EXTRAS := test,torch,atari,envpool,onnx,yaml,video,classic,box2d,mujoco,grpc,kafka,minari,wandb,mlflow

.PHONY: train test test-slow faults check bench learn protos format clean help

train: $(VENV)/.ready  ## train an agent (ENV=CartPole-v1, ARGS="--seed 2")
	$(BIN)/mill train $(ENV) --capture-video $(ARGS)

test: $(VENV)/.ready-test  ## run the tests
	$(BIN)/pytest $(ARGS)

test-slow: $(VENV)/.ready-test  ## run the tests that take minutes: learning, faults
	$(BIN)/pytest -m slow --timeout 1800 $(ARGS)

faults: $(VENV)/.ready-test  ## kill what can be killed, at many random moments
	$(BIN)/pytest -m slow tests/faults --timeout 1800 $(ARGS)

check: $(VENV)/.ready-test  ## style, types and import rules
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/pytest tests/test_rooms.py

bench: $(VENV)/.ready-test  ## measure against peers, each in an environment of its own (ARGS="--only ppo")
	$(BIN)/python benchmarks/run.py $(ARGS)

learn: $(VENV)/.ready-test  ## measure the presets again and redraw their curves (ARGS="--only LunarLander-v3")
	$(BIN)/python benchmarks/learn.py $(ARGS)

protos: $(VENV)/.ready-test  ## generate the stubs of protos/*.proto again
	PYTHON=$(BIN)/python bash compile_proto.sh

format: $(VENV)/.ready-test  ## bring the code into its style
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:  ## remove what was installed and built
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache

help:  ## show these words
	@grep -E '^[a-z-]+:.*##' Makefile | sed -E 's/:[^#]*## /\t/' | expand -t 14

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)

IN_C := hatch_build.py $(wildcard src/millstream/*/*.[ch] src/millstream/*/*/*.[ch])

$(VENV)/.ready: $(VENV)/bin/python pyproject.toml constraints.txt $(IN_C)
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e .
	touch $@

$(VENV)/.ready-test: $(VENV)/.ready
	$(BIN)/pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[$(TEST_EXTRAS)]'
	touch $@
