# Two commands for a newcomer: `make demo` and `make test`.  Each makes its own virtual environment.
# PYTHON is the Python (3.10 or newer) to make them with.
PYTHON ?= python3
# What `make test` must not skip, e.g. REQUIRE=docker,torchtitan; without it, what is missing is skipped with its reason.
REQUIRE ?=

TORCH_LOCKS = base/requirements-launcher.txt base/requirements-torch.txt images/torchtitan/requirements.cpu.txt
MEGATRON_LOCKS = base/requirements-launcher.txt base/requirements-torch.txt images/megatron/requirements.cpu.txt
BRIDGE_LOCK = images/megatron_bridge/requirements.cpu.txt
SPECFORGE_LOCKS = base/requirements-launcher.txt base/requirements-torch.txt images/specforge/requirements.cpu.txt
# Few retries: a site that cannot reach PyTorch's own index has its wheels elsewhere.
TORCH_INSTALL = --retries 1 --no-deps -r base/requirements-torch.cpu.txt
# By a path: by setuptools' other way, a folder named primus/ where one stands would come first.
EDITABLE = --no-deps --no-build-isolation --config-settings editable_mode=compat -e .
PIP_INSTALL = -m pip install -qq --disable-pip-version-check

.PHONY: demo test lint docs bench clean

demo: .venv-torchtitan/ready
	@.venv-torchtitan/bin/python examples/demo.py

test: lint
	.venv/bin/python -m pytest $(if $(REQUIRE),--require $(REQUIRE))

lint: .venv/ready
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/hadolint base/*Dockerfile images/*/Dockerfile
	.venv/bin/shellcheck .ci/run .ci/host/*.sh examples/slurm/*.sh

# The documentation as a site, in output/site.
docs: .venv-docs/ready
	.venv-docs/bin/python docs/build.py output/site

bench: .venv/ready
	.venv/bin/python benchmarks/startup.py
	.venv/bin/python benchmarks/check.py

clean:
	rm -rf .venv .venv-* output

# The launcher and the tools that check it.
.venv/ready: tests/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv
	.venv/bin/python $(PIP_INSTALL) --require-hashes -r tests/requirements.txt
	.venv/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

.venv-docs/ready: docs/requirements.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python $(PIP_INSTALL) --require-hashes -r docs/requirements.txt
	@touch $@

# TorchTitan and the launcher in one Python: what the CPU image holds, outside of any image.
.venv-torchtitan/ready: $(TORCH_LOCKS) base/requirements-torch.cpu.txt
	@echo "Setting up .venv-torchtitan: PyTorch for CPU and TorchTitan, about 1.5 GB. Once."
	@$(PYTHON) -m venv .venv-torchtitan
	@.venv-torchtitan/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	@.venv-torchtitan/bin/python $(PIP_INSTALL) --require-hashes $(TORCH_LOCKS:%=-r %)
	@.venv-torchtitan/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# Megatron wants Python 3.11 or newer. Its wheel says 3.12, and its worker makes up for the difference.
.venv-megatron/ready: base/requirements-torch.cpu.txt images/megatron/no-deps.txt $(MEGATRON_LOCKS)
	$(PYTHON) -m venv .venv-megatron
	.venv-megatron/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	.venv-megatron/bin/python $(PIP_INSTALL) --require-hashes $(MEGATRON_LOCKS:%=-r %)
	.venv-megatron/bin/python $(PIP_INSTALL) --require-hashes --no-deps --ignore-requires-python -r images/megatron/no-deps.txt
	.venv-megatron/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# Megatron and, on top of it, Megatron Bridge, whose parser of overrides is on the index as source alone.
.venv-megatron_bridge/ready: base/requirements-torch.cpu.txt $(MEGATRON_LOCKS) $(BRIDGE_LOCK) $(wildcard images/megatron*/no-deps.txt)
	$(PYTHON) -m venv .venv-megatron_bridge
	.venv-megatron_bridge/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	.venv-megatron_bridge/bin/python $(PIP_INSTALL) --require-hashes $(MEGATRON_LOCKS:%=-r %)
	.venv-megatron_bridge/bin/python $(PIP_INSTALL) --require-hashes --no-build-isolation -r $(BRIDGE_LOCK)
	.venv-megatron_bridge/bin/python $(PIP_INSTALL) --require-hashes --no-deps --ignore-requires-python -r images/megatron/no-deps.txt -r images/megatron_bridge/no-deps.txt
	.venv-megatron_bridge/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# SpecForge wants Python 3.11 or newer.
.venv-specforge/ready: base/requirements-torch.cpu.txt images/specforge/no-deps.txt $(SPECFORGE_LOCKS)
	$(PYTHON) -m venv .venv-specforge
	.venv-specforge/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	.venv-specforge/bin/python $(PIP_INSTALL) --require-hashes $(SPECFORGE_LOCKS:%=-r %)
	.venv-specforge/bin/python $(PIP_INSTALL) --require-hashes --no-deps -r images/specforge/no-deps.txt
	.venv-specforge/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# MaxText wants Python 3.12 or newer: make .venv-maxtext/ready PYTHON=python3.12
.venv-maxtext/ready: base/requirements-launcher.txt base/requirements-jax.cpu.txt images/maxtext/requirements.cpu.txt
	$(PYTHON) -m venv .venv-maxtext
	.venv-maxtext/bin/python $(PIP_INSTALL) --require-hashes $(^:%=-r %)
	.venv-maxtext/bin/python $(PIP_INSTALL) setuptools==80.10.2
	.venv-maxtext/bin/python $(PIP_INSTALL) $(EDITABLE)
	@touch $@

# MaxDiffusion is on no package index: make .venv-maxdiffusion/ready SOURCE=DIR, a git directory that has its commit.
SOURCE ?= $(error SOURCE=DIR is missing: a git directory of AI-Hypercomputer/maxdiffusion)
MAXDIFFUSION_LOCKS = base/requirements-launcher.txt base/requirements-jax.cpu.txt images/maxdiffusion/requirements.cpu.txt
MAXDIFFUSION = .venv-maxdiffusion/maxdiffusion
PATCHES = images/maxdiffusion/patches
pinned = $(shell sed -n '/ maxdiffusion = {/,/}/s/^ *$(1) *= "\(.*\)"/\1/p' docker-bake.hcl)
.venv-maxdiffusion/ready: base/requirements-torch.cpu.txt $(MAXDIFFUSION_LOCKS) images/source.py images/maxdiffusion/tiny.py $(wildcard $(PATCHES)/*/*)
	$(PYTHON) -m venv --clear .venv-maxdiffusion
	$(PYTHON) images/source.py --source='$(SOURCE)' --commit=$(call pinned,commit) --tree=$(call pinned,tree) \
	  --patches=$(PATCHES)/maxdiffusion --output=$(MAXDIFFUSION)
	.venv-maxdiffusion/bin/python $(PIP_INSTALL) $(TORCH_INSTALL)
	.venv-maxdiffusion/bin/python $(PIP_INSTALL) --require-hashes $(MAXDIFFUSION_LOCKS:%=-r %)
	.venv-maxdiffusion/bin/python $(PIP_INSTALL) $(EDITABLE)
	cd .venv-maxdiffusion && mkdir -p wheel/transformers/models && \
	  cp -r lib/python3*/site-packages/transformers/models/t5 wheel/transformers/models && \
	  $(abspath .venv-maxdiffusion)/bin/python $(abspath images/source.py) --source=wheel --output=patched \
	    --patches=$(abspath $(PATCHES))/transformers && \
	  cp patched/transformers/models/t5/*.py lib/python3*/site-packages/transformers/models/t5
	echo $(abspath $(MAXDIFFUSION))/src > $$(echo .venv-maxdiffusion/lib/python3*/site-packages)/maxdiffusion.pth
	.venv-maxdiffusion/bin/python images/maxdiffusion/tiny.py .venv-maxdiffusion/share/primus/models
	@touch $@
