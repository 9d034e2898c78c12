# Every image target, and the one list of backends.  `docker buildx bake torchtitan` builds one,
# `docker buildx bake` all.  Values come from the environment: ACCELERATOR=cpu docker buildx bake.
# Works on buildx 0.13 and newer: no variable types or validation, no file(), strings for secrets.

variable "REGISTRY"    { default = "" }       # e.g. registry.example.com/team
variable "VERSION"     { default = "0.1.0" }  # the package's, primus/_version.py
variable "ACCELERATOR" { default = "rocm" }   # rocm or cpu
variable "REVISION"    { default = "" }       # commit and repository, for the labels
variable "SOURCE"      { default = "" }

# The OS image, by digest: Ubuntu 24.04 of 2026-10-02, as public Dockerfiles resolved the tag then.  For cpu, any
# Debian or Ubuntu with Python 3.11 or newer can replace it; BASE_IMAGE_JAX does so for the JAX backends only
# (MaxText wants Python 3.12).  APT_SNAPSHOT dates its packages; "" for an archive without snapshots, like Debian's.
variable "BASE_IMAGE" {
  default = "docker.io/library/ubuntu:24.04@sha256:a853f94d226358a79c740cfc7bce0c289748f3fe3488d921d038ccd752c61b60"
}
variable "BASE_IMAGE_JAX" { default = "" }
variable "APT_SNAPSHOT"   { default = "20261003T000000Z" }

# What SpecForge stands on for ROCm, by digest: SGLang 0.5.14 with ROCm 7.0, as upstream Primus has it.  It has kernels
# for one kind of GPU: for MI300X name the tag v0.5.14-rocm700-mi30x by its digest, and gfx942.
variable "SGLANG_IMAGE" {
  default = "docker.io/lmsysorg/sglang:v0.5.14-rocm700-mi35x@sha256:f1d38fd8076e69fdd103858149f9953a936cf9b322b2aa2cc97b08474d9a3623"
}
variable "SGLANG_GFX" { default = "gfx950" }

# SpecForge's capture script, which is in no wheel: the closest commit that we know to the 0.2.0 on PyPI, two days older.
variable "SPECFORGE_COMMIT" { default = "a6b6b0230009d15ec2a97a57384e6f53f0f96946" }

# What a build behind a mirror, a proxy or an air gap needs; nothing of it stays in an image.
variable "BUILD_PIP_CONF"  { default = "" }  # a pip.conf
variable "BUILD_APT_CONF"  { default = "" }  # an apt.conf
variable "BUILD_CA_BUNDLE" { default = "" }  # CA certificates, PEM
variable "BUILD_WHEELS"    { default = "" }  # a folder of wheels
variable "BUILD_NETWORK"   { default = "" }  # none: all that is needed is in the folders above

# The GPU targets of each accelerator; any other value of ACCELERATOR fails here.
variable "GFX" {
  default = { rocm = "gfx942,gfx950", cpu = "" }[ACCELERATOR]
}

# The backends, with the base each stands on.
variable "FRAMEWORKS" {
  default = {
    torchtitan = "base-torch", maxtext = "base-jax", megatron = "base-torch"
    specforge = { rocm = "base-sglang", cpu = "base-torch" }[ACCELERATOR]
  }
}

function "tags" {
  params = [name]
  result = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}primus-${name}:${VERSION}-${ACCELERATOR}"]
}

function "os_image" {
  params = [base]
  result = base == "base-sglang" ? SGLANG_IMAGE : base == "base-jax" && BASE_IMAGE_JAX != "" ? BASE_IMAGE_JAX : BASE_IMAGE
}

function "gfx" {
  params = [base]
  result = base == "base-sglang" ? SGLANG_GFX : GFX
}

function "labels" {
  params = [name, base]
  result = {
    "org.opencontainers.image.title"    = "primus-${name}"
    "org.opencontainers.image.version"  = VERSION
    "org.opencontainers.image.source"   = SOURCE == "" ? null : SOURCE
    "org.opencontainers.image.revision" = REVISION == "" ? null : REVISION
    "io.primus.accelerator"             = ACCELERATOR
    "io.primus.gfx"                     = gfx(base)
  }
}

group "default" {
  targets = keys(FRAMEWORKS)
}

target "_common" {
  context = "."
  network = BUILD_NETWORK == "" ? null : BUILD_NETWORK
  secret = concat(
    [for path in compact([BUILD_PIP_CONF]) : "id=pip_conf,src=${path}"],
    [for path in compact([BUILD_APT_CONF]) : "id=apt_conf,src=${path}"],
    [for path in compact([BUILD_CA_BUNDLE]) : "id=ca_bundle,src=${path}"],
  )
}

# The shared base: `base` alone, and with either framework family on top.
target "shared" {
  name       = base
  matrix     = { base = ["base", "base-torch", "base-jax"] }
  inherits   = ["_common"]
  dockerfile = "base/Dockerfile"
  target     = base
  contexts   = { for dir in compact([BUILD_WHEELS]) : "wheels" => dir }
  args       = { ACCELERATOR = ACCELERATOR, APT_SNAPSHOT = APT_SNAPSHOT, BASE_IMAGE = os_image(base) }
  tags       = tags(base)
  labels     = labels(base, base)
}

# The primus package alone; every backend copies it in last.
target "launcher" {
  context    = "."
  dockerfile = "base/launcher.Dockerfile"
  tags       = tags("launcher")
}

target "backend" {
  name       = framework
  matrix     = { framework = keys(FRAMEWORKS) }
  inherits   = ["_common"]
  dockerfile = "images/${framework}/Dockerfile"
  contexts = merge(
    { launcher = "target:launcher" },
    { for base in [FRAMEWORKS[framework]] : base => "target:${base}" if base != "base-sglang" },
    { for base in [FRAMEWORKS[framework]] : base => "docker-image://${SGLANG_IMAGE}" if base == "base-sglang" },
    { for name in ["specforge"] : "specforge-source" => "https://github.com/sgl-project/SpecForge.git#${SPECFORGE_COMMIT}"
      if FRAMEWORKS[framework] == "base-sglang" },
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
  )
  args = merge(
    {
      ACCELERATOR = ACCELERATOR
      BASE_IMAGE  = os_image(FRAMEWORKS[framework])
      GFX         = gfx(FRAMEWORKS[framework])
      VERSION     = VERSION
    },
    { for base in [FRAMEWORKS[framework]] : "SPECFORGE_SOURCE" => "specforge=${SPECFORGE_COMMIT}" if base == "base-sglang" },
  )
  tags   = tags(framework)
  labels = merge(labels(framework, FRAMEWORKS[framework]), { "io.primus.framework" = framework })
}
