# Every image target, and the one list of backends.  `docker buildx bake torchtitan` builds one,
# `docker buildx bake` all.  Values come from the environment: ACCELERATOR=cpu docker buildx bake.
# Works on buildx 0.13 and newer: no variable types or validation, no file(), strings for secrets.

variable "REGISTRY"    { default = "" }       # e.g. registry.example.com/team
variable "VERSION"     { default = "0.1.0" }  # the package's, primus/_version.py
variable "ACCELERATOR" { default = "rocm" }   # rocm or cpu
variable "REVISION"    { default = "" }       # commit and repository, for the labels
variable "SOURCE"      { default = "" }

# The OS image, by digest: Ubuntu 24.04 of 2026-10-02, as public Dockerfiles resolved the tag then.  For cpu, any
# Debian or Ubuntu with Python 3.11 or newer can replace it; BASE_IMAGE_JAX does so for base-jax alone
# (MaxText wants Python 3.12).  APT_SNAPSHOT dates its packages; "" for an archive without snapshots, like Debian's.
variable "BASE_IMAGE" {
  default = "docker.io/library/ubuntu:24.04@sha256:a853f94d226358a79c740cfc7bce0c289748f3fe3488d921d038ccd752c61b60"
}
variable "BASE_IMAGE_JAX" { default = "" }
variable "APT_SNAPSHOT"   { default = "20261003T000000Z" }

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
  default = { torchtitan = "base-torch", maxtext = "base-jax", megatron = "base-torch", maxdiffusion = "base-jax-torch" }
}

# Sources that are on no package index, each as the named context <backend>-source: the repository, the commit, and the
# hash of its files (`git rev-parse COMMIT^{tree}`), which is checked wherever they come from.  A mirror or a local git
# directory instead of the URL: --set='*.contexts.maxdiffusion-source=DIR'.
variable "SOURCES" {
  default = {
    maxdiffusion = {
      repository = "https://github.com/AI-Hypercomputer/maxdiffusion.git"
      commit     = "68e069659f0af80694559e29939a17f879fe7f6a"
      tree       = "937adf54f87c3c6e03ac3d01d7482805e685cf6b"
    }
  }
}

function "tags" {
  params = [name]
  result = ["${REGISTRY == "" ? "" : "${REGISTRY}/"}primus-${name}:${VERSION}-${ACCELERATOR}"]
}

function "os_image" {
  params = [base]
  result = base == "base-jax" && BASE_IMAGE_JAX != "" ? BASE_IMAGE_JAX : BASE_IMAGE
}

function "labels" {
  params = [name]
  result = {
    "org.opencontainers.image.title"    = "primus-${name}"
    "org.opencontainers.image.version"  = VERSION
    "org.opencontainers.image.source"   = SOURCE == "" ? null : SOURCE
    "org.opencontainers.image.revision" = REVISION == "" ? null : REVISION
    "io.primus.accelerator"             = ACCELERATOR
    "io.primus.gfx"                     = GFX
  }
}

# The contexts and arguments of a backend that has a source: none, or what its `source` stage wants.
function "source_contexts" {
  params = [framework]
  result = {
    for name, source in SOURCES : "${name}-source" => "${source.repository}#${source.commit}" if name == framework
  }
}

function "source_args" {
  params = [framework]
  result = merge([for name, source in SOURCES : { COMMIT = source.commit, TREE = source.tree } if name == framework]...)
}

group "default" {
  targets = keys(FRAMEWORKS)
}

# Do the sources have the pinned commits, and do our patches fit them?  Builds no image.
group "validate" {
  targets = [for framework in keys(SOURCES) : "validate-${framework}"]
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

# The shared base: `base` alone, with either framework family on top, and what checks and patches sources.
target "shared" {
  name       = base
  matrix     = { base = ["base", "base-torch", "base-jax", "base-jax-torch", "base-source"] }
  inherits   = ["_common"]
  dockerfile = "base/Dockerfile"
  target     = base
  contexts   = { for dir in compact([BUILD_WHEELS]) : "wheels" => dir }
  args       = { ACCELERATOR = ACCELERATOR, APT_SNAPSHOT = APT_SNAPSHOT, BASE_IMAGE = os_image(base) }
  tags       = tags(base)
  labels     = labels(base)
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
    { (FRAMEWORKS[framework]) = "target:${FRAMEWORKS[framework]}" },
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
    source_contexts(framework),
    { for name in keys(SOURCES) : "base-source" => "target:base-source" if name == framework },
  )
  args = merge(source_args(framework), {
    ACCELERATOR = ACCELERATOR
    BASE_IMAGE  = os_image(FRAMEWORKS[framework])
    GFX         = GFX
    VERSION     = VERSION
  })
  tags   = tags(framework)
  labels = merge(labels(framework), { "io.primus.framework" = framework })
}

target "validate" {
  name       = "validate-${framework}"
  matrix     = { framework = keys(SOURCES) }
  inherits   = ["_common"]
  dockerfile = "images/${framework}/Dockerfile"
  target     = "source"
  contexts   = merge({ base-source = "target:base-source" }, source_contexts(framework))
  args       = source_args(framework)
  output     = ["type=cacheonly"]
}
