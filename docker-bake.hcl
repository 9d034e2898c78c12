# Every image target, and the one list of backends.  `docker buildx bake torchtitan` builds one,
# `docker buildx bake` all.  Values come from the environment: ACCELERATOR=cpu docker buildx bake.
# Works on buildx 0.13 and newer: no variable types or validation, no file(), strings for secrets.

variable "REGISTRY"    { default = "" }       # e.g. registry.example.com/team
variable "VERSION"     { default = "0.1.0" }  # the package's, primus/_version.py
variable "ACCELERATOR" { default = "rocm" }   # rocm or cpu
variable "REVISION"    { default = "" }       # commit and repository, for the labels
variable "SOURCE"      { default = "" }

# Seconds since 1970 that the image's configuration gives as the time of its making: the commit's
# (git log -1 --format=%ct), so that a second build from clean has the same Image ID.  Empty: when it is built.
variable "SOURCE_DATE_EPOCH" { default = "" }

# The OS image, by digest: Ubuntu 24.04 of 2026-10-02, as public Dockerfiles resolved the tag then.  For cpu, any
# Debian or Ubuntu with Python 3.11 or newer can replace it; BASE_IMAGE_JAX does so for base-jax alone
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
    torchtitan      = "base-torch"
    megatron        = "base-torch"
    megatron_bridge = "megatron-build"
    maxtext         = "base-jax"
    maxdiffusion    = "base-jax-torch"
    specforge       = { rocm = "base-sglang", cpu = "base-torch" }[ACCELERATOR]
  }
}

# Sources that are on no package index, each as the named context <backend>-source: the repository, the commit, and the
# hash of its files (`git rev-parse COMMIT^{tree}`), which is checked wherever they come from.  A mirror or a local git
# directory instead of the URL: --set='*.contexts.maxdiffusion-source=DIR'.
variable "SOURCES" {
  default = {
    for name, source in {
      maxdiffusion = {
        repository = "https://github.com/AI-Hypercomputer/maxdiffusion.git"
        commit     = "68e069659f0af80694559e29939a17f879fe7f6a"
        tree       = "937adf54f87c3c6e03ac3d01d7482805e685cf6b"
      }
      # SpecForge's capture script, which is in no wheel: the closest commit that we know to the 0.2.0 on PyPI, two days
      # older.  Nothing runs it on a CPU.
      specforge = {
        repository = "https://github.com/sgl-project/SpecForge.git"
        commit     = "a6b6b0230009d15ec2a97a57384e6f53f0f96946"
        tree       = "19611d536b6f08c5fa2276f6744a0778c430f714"
      }
    } : name => source if !(name == "specforge" && ACCELERATOR == "cpu")
  }
}

# What ROCm's images compile and no package index serves: repositories at full commits, with the submodules they name.
# A mirror, or a checkout of the same commit, replaces one: --set='*.contexts.transformer-engine-source=DIR'
variable "KERNELS" {
  default = {
    megatron = {
      "transformer-engine" = {
        repository = "https://github.com/ROCm/TransformerEngine.git"
        commit     = "a365f2deb555e681bf5b259e344b2bd1fbb4f87c"
      }
      "primus-turbo" = {
        repository = "https://github.com/AMD-AGI/Primus-Turbo.git"
        commit     = "b7d7086f6c3779b9fbd0ea9ed6997f98565e7311"
      }
    }
    # For both backends on JAX, compiled once: base/jax-kernels.Dockerfile.
    jax = {
      "transformer-engine-jax" = {
        repository = "https://github.com/ROCm/TransformerEngine.git"
        commit     = "a07e607f14a5330807ffdafeeb6224f2d7dffacc"
      }
    }
  }
}

# The Python modules that come of them, for the label by which the launcher knows that an image has them.
variable "COMPILED" {
  default = {
    megatron = "transformer_engine primus_turbo mamba_ssm causal_conv1d"
    jax      = "transformer_engine"
  }
}

# Whose kernels a backend has: its own, those of the one it stands on, or JAX's.
function "below" {
  params = [framework]
  result = lookup({ megatron-build = "megatron", base-jax = "jax", base-jax-torch = "jax" }, FRAMEWORKS[framework], framework)
}

function "kernels" {
  params = [name]
  result = { for source, pin in lookup(KERNELS, name, {}) : source => pin if ACCELERATOR == "rocm" }
}

# What a file that compiles them is given: the sources, and where they are checked; and each one's commit.
function "kernel_contexts" {
  params = [name]
  result = merge(
    { for source, pin in kernels(name) : "${source}-source" => "${pin.repository}#${pin.commit}" },
    { for context in ["base-source"] : context => "target:base-source" if length(keys(kernels(name))) > 0 },
  )
}

function "kernel_args" {
  params = [name]
  result = { for source, pin in kernels(name) : "${upper(replace(source, "-", "_"))}_COMMIT" => pin.commit }
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
  targets = [for name in keys(validated()) : "validate-${name}"]
}

# The files that have a stage for it.
function "validated" {
  params = []
  result = merge(
    { for framework in keys(SOURCES) : framework => "images/${framework}/Dockerfile" },
    { for name in keys(KERNELS) : name => "images/${name}/Dockerfile" if ACCELERATOR == "rocm" && contains(keys(FRAMEWORKS), name) },
    { for name in keys(KERNELS) : name => "base/${name}-kernels.Dockerfile" if ACCELERATOR == "rocm" && !contains(keys(FRAMEWORKS), name) },
  )
}

target "_common" {
  context = "."
  args    = { SOURCE_DATE_EPOCH = SOURCE_DATE_EPOCH == "" ? null : SOURCE_DATE_EPOCH }
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
  labels     = labels(base, base)
}

# The primus package and the examples; every backend copies them in last.
target "launcher" {
  inherits   = ["_common"]
  dockerfile = "base/Dockerfile"
  target     = "launcher"
  args       = { ACCELERATOR = ACCELERATOR, APT_SNAPSHOT = APT_SNAPSHOT, BASE_IMAGE = BASE_IMAGE }
  tags       = tags("launcher")
}

# Megatron without its manifest and the launcher: what another backend can stand on.
target "megatron-build" {
  inherits   = ["_common"]
  dockerfile = "images/megatron/Dockerfile"
  target     = ACCELERATOR
  contexts = merge(
    { base-torch = "target:base-torch" },
    kernel_contexts("megatron"),
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
  )
  args = merge(kernel_args("megatron"), { ACCELERATOR = ACCELERATOR, APT_SNAPSHOT = APT_SNAPSHOT, GFX = GFX })
}

# The wheels of KERNELS.jax, in an image of nothing else; for ROCm alone.
target "jax-kernels" {
  inherits   = ["_common"]
  dockerfile = "base/jax-kernels.Dockerfile"
  target     = "kernels"
  contexts = merge(
    { base-jax = "target:base-jax" },
    kernel_contexts("jax"),
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
  )
  args = merge(kernel_args("jax"), { APT_SNAPSHOT = APT_SNAPSHOT, GFX = GFX })
}

target "backend" {
  name       = framework
  matrix     = { framework = keys(FRAMEWORKS) }
  inherits   = ["_common"]
  dockerfile = "images/${framework}/Dockerfile"
  contexts = merge(
    { launcher = "target:launcher" },
    { (FRAMEWORKS[framework]) = FRAMEWORKS[framework] == "base-sglang" ? "docker-image://${SGLANG_IMAGE}" : "target:${FRAMEWORKS[framework]}" },
    kernel_contexts(framework),
    { for name in keys(kernels(below(framework))) : "jax-kernels" => "target:jax-kernels" if below(framework) == "jax" },
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
    source_contexts(framework),
    { for name in keys(SOURCES) : "base-source" => "target:base-source" if name == framework },
  )
  args = merge(source_args(framework), kernel_args(framework), {
    ACCELERATOR  = ACCELERATOR
    APT_SNAPSHOT = APT_SNAPSHOT
    BASE_IMAGE   = os_image(FRAMEWORKS[framework])
    GFX          = gfx(FRAMEWORKS[framework])
    KERNELS      = join(" ", [for name, source in kernels(below(framework)) : "--source=${name}=${source.commit}"])
    VERSION      = VERSION
  })
  tags   = tags(framework)
  labels = merge(labels(framework, FRAMEWORKS[framework]), {
    "io.primus.framework" = framework
    "io.primus.compiled"  = length(keys(kernels(below(framework)))) > 0 ? COMPILED[below(framework)] : null
  })
}

target "validate" {
  name       = "validate-${name}"
  matrix     = { name = keys(validated()) }
  inherits   = ["_common"]
  dockerfile = validated()[name]
  target     = "validate"
  contexts = merge(
    { base-source = "target:base-source" },
    source_contexts(name),
    kernel_contexts(name),
    { for dir in compact([BUILD_WHEELS]) : "wheels" => dir },
  )
  args   = merge(source_args(name), kernel_args(name), { ACCELERATOR = ACCELERATOR })
  output = ["type=cacheonly"]
}
