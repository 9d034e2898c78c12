# Two commands for a newcomer: `make demo` and `make test`.  Each makes its own virtual environment.
# PYTHON is the Python (3.10 or newer) to make them with.
PYTHON ?= python3
# What `make test` must not skip, e.g. REQUIRE=docker,torchtitan; without it, what is missing is skipped with its reason.
REQUIRE ?=

TORCH_LOCKS = base/requirements-launcher.txt base/requirements-torch.txt images/torchtitan/requirements.cpu.txt
MEGATRON_LOCKS = base/requirements-launcher.txt base/requirements-torch.txt images/megatron/requirements.cpu.txt
# Few retries: a site that cannot reach PyTorch's own index has its wheels elsewhere.
TORCH_INSTALL = --retries 1 --no-deps -r base/requirements-torch.cpu.txt
PIP_INSTALL = -m pip install -qq --disable-pip-version-check

.PHONY: demo test lint bench clean

demo: .venv-torchtitan/ready
	@.venv-torchtitan/bin/python examples/demo.py

test: lint
	.venv/bin/python -m pytest $(if $(REQUIRE),--require $(REQUIRE))

lint: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/hadolint base/*Dockerfile images/*/Dockerfile
	.venv/bin/shellcheck .ci/run .ci/host/*.sh

bench: .venv/ready
	.venv/bin/python benchmarks/startup.py
	.venv/bin/python benchmarks/check.py

clean:
	rm -rf .venv .venv-torchtitan .venv-maxtext .venv-megatron output

# The launcher and the tools that check it.
.venv/ready: tests/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) --require-hashes -r tests/requirements.txt
	.venv/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# TorchTitan and the launcher in one Python: what the CPU image holds, outside of any image.
.venv-torchtitan/ready: $(TORCH_LOCKS) base/requirements-torch.cpu.txt
	@echo "Setting up .venv-torchtitan: PyTorch for CPU and TorchTitan, about 1.5 GB. Once."
	@$(PYTHON) -m venv .venv-torchtitan
	@.venv-torchtitan/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	@.venv-torchtitan/bin/python $(PIP_INSTALL) --require-hashes $(TORCH_LOCKS:%=-r %)
	@.venv-torchtitan/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# Megatron wants Python 3.11 or newer. Its wheel says 3.12, and its worker makes up for the difference.
.venv-megatron/ready: base/requirements-torch.cpu.txt images/megatron/no-deps.txt $(MEGATRON_LOCKS)
	$(PYTHON) -m venv .venv-megatron
	.venv-megatron/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	.venv-megatron/bin/python $(PIP_INSTALL) --require-hashes $(MEGATRON_LOCKS:%=-r %)
	.venv-megatron/bin/python $(PIP_INSTALL) --require-hashes --no-deps --ignore-requires-python -r images/megatron/no-deps.txt
	.venv-megatron/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

# MaxText wants Python 3.12 or newer: make .venv-maxtext/ready PYTHON=python3.12
.venv-maxtext/ready: base/requirements-launcher.txt base/requirements-jax.cpu.txt images/maxtext/requirements.cpu.txt
	$(PYTHON) -m venv .venv-maxtext
	.venv-maxtext/bin/python $(PIP_INSTALL) --require-hashes $(^:%=-r %)
	.venv-maxtext/bin/python $(PIP_INSTALL) setuptools==80.10.2
	.venv-maxtext/bin/python $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@
