# Transformer Engine for JAX on ROCm, which no index serves for ROCm 7.2: one wheel, for both backends on JAX.
# Which commit, and what it stands on: images/maxtext/README.md.

# Replaced by docker-bake.hcl's named contexts.
FROM scratch AS base-jax
FROM scratch AS base-source
FROM scratch AS transformer-engine-jax-source
FROM scratch AS wheels

# The files of the repository itself, patched; the submodules are checked and stay where they are.
FROM base-source AS source
ARG TRANSFORMER_ENGINE_JAX_COMMIT
RUN --mount=type=bind,from=transformer-engine-jax-source,target=/source \
    --mount=type=bind,source=images/source.py,target=/build/source.py \
    --mount=type=bind,source=base/patches/transformer_engine,target=/build/patches \
    python3 /build/source.py --source=/source --commit="$TRANSFORMER_ENGINE_JAX_COMMIT" --checkout \
        --patches=/build/patches --output=/patched

# What was patched, and nothing else: `docker buildx bake validate`.
FROM scratch AS validate
COPY --from=source /patched /transformer-engine

FROM base-jax AS compile
ARG APT_SNAPSHOT
ARG GFX
RUN --mount=type=secret,id=apt_conf,target=/etc/apt/apt.conf.d/99build \
    --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=cache,target=/var/cache/apt,sharing=locked \
    --mount=type=cache,target=/var/lib/apt/lists,sharing=locked \
    --mount=type=tmpfs,target=/tmp \
    --mount=type=bind,source=base/rocm/packages-sdk.txt,target=/build/packages.txt \
    --mount=type=bind,source=base/rocm/rocm.asc,target=/build/rocm.asc \
    --mount=type=bind,source=base/rocm/rocm.sources,target=/etc/apt/sources.list.d/rocm.sources \
    --mount=type=bind,source=base/rocm/rocm.pref,target=/etc/apt/preferences.d/rocm.pref \
    apt-get --option "APT::Snapshot=${APT_SNAPSHOT}" update --error-on=any \
 && sed 's/#.*//' /build/packages.txt > /tmp/packages \
 && xargs --arg-file=/tmp/packages apt-get --option "APT::Snapshot=${APT_SNAPSHOT}" install --yes --no-install-recommends
RUN --mount=type=secret,id=pip_conf,target=/etc/pip.conf \
    --mount=type=secret,id=ca_bundle,target=/etc/ssl/certs/ca-certificates.crt \
    --mount=type=bind,from=wheels,target=/wheels \
    --mount=type=bind,source=base/requirements-jax-tools.txt,target=/build/requirements.txt \
    --mount=type=cache,target=/root/.cache/pip \
    pip install --cache-dir /root/.cache/pip --find-links /wheels --require-hashes --requirement /build/requirements.txt
# Attention is Composable Kernel's, compiled here for every kind of call (CK_JIT: when one is first made), and not
# AOTriton's, which the build would download.  The submodules were checked; setup.py would fetch them anew.
RUN --mount=type=bind,from=transformer-engine-jax-source,target=/build/source,rw \
    --mount=type=bind,from=source,source=/patched,target=/build/patched \
    cp -r /build/patched/. /build/source \
 && NVTE_ROCM_ARCH="$(python -c 'import sys; print(sys.argv[1].replace(",", ";"))' "$GFX")" \
    NVTE_FRAMEWORK=jax NVTE_USE_ROCM=1 NVTE_CK_JIT=0 NVTE_FUSED_ATTN_AOTRITON=0 \
    NVTE_SKIP_SUBMODULE_CHECKS_DURING_BUILD=1 \
    pip wheel --no-index --no-deps --no-build-isolation --wheel-dir /kernels /build/source

FROM scratch AS kernels
COPY --from=compile /kernels /kernels
