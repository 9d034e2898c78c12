#!/usr/bin/env bash
# Install a Docker engine with buildx on Debian 12, new enough for docker-bake.hcl, and start it.
# Debian 12's own is too old (20.10): engine, client, buildx and containerd come from a newer suite of whatever
# mirror the machine uses; everything else, and /etc/apt, stays as it is.  Needs root; safe to run again.
#
#   DOCKER_SUITE      where the engine comes from  (default: trixie)
#   DOCKER_DATA_ROOT  its storage                  (default: /var/lib/docker)
#   DOCKER_LOG        its log, without systemd     (default: /var/log/dockerd.log)
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
suite=${DOCKER_SUITE:-trixie}
data_root=${DOCKER_DATA_ROOT:-/var/lib/docker}
log=${DOCKER_LOG:-/var/log/dockerd.log}
policy=/usr/sbin/policy-rc.d

say() { printf '[install-docker] %s\n' "$*" >&2; }
die() { say "error: $*"; exit 1; }
at_least() { [ "$(printf '%s\n%s\n' "$2" "$1" | sort --version-sort | head -n 1)" = "$2" ]; }
engine_version() { dockerd --version 2>/dev/null | sed -n 's/^Docker version \([0-9.]*\).*/\1/p'; }
buildx_version() { docker buildx version 2>/dev/null | sed -n '1s/.* v\{0,1\}\([0-9][0-9.]*\).*/\1/p'; }
engine_answers() { docker version --format '{{.Server.Version}}' >/dev/null 2>&1; }  # `docker info` exits 0 without one

installed() {
  at_least "$(engine_version)" 23.0 && at_least "$(buildx_version)" 0.12 &&
    command -v runc >/dev/null && command -v iptables >/dev/null && command -v docker-init >/dev/null
}

# The machine's apt sources once more, with the newer suite's name.
newer_sources() { # FOLDER
  local current file count=0
  current=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  for file in /etc/apt/sources.list.d/*.sources; do
    grep -Eqs "^Suites:.*\b$current\b" "$file" || continue
    sed -E "s/\b$current\b/$suite/g" "$file" > "$1/newer-$count.sources"
    count=$((count + 1))
  done
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    grep -Eqs "^deb .*\b$current\b" "$file" || continue
    sed -nE "/^deb .*\b$current\b/s/\b$current\b/$suite/gp" "$file" > "$1/newer-$count.list"
    count=$((count + 1))
  done
  [ "$count" -gt 0 ] || die "no apt source for $current here, so none for $suite"
}

install_engine() {
  local dir=$1 status=0 own_policy=
  mkdir -p "$dir/sources" "$dir/preferences" "$dir/lists/partial" "$dir/archives/partial"
  chmod 755 "$dir"
  cp -a /etc/apt/sources.list.d/. "$dir/sources/"
  [ ! -e /etc/apt/sources.list ] || cp -a /etc/apt/sources.list "$dir/sources/main.list"
  cp -a /etc/apt/preferences.d/. "$dir/preferences/"
  newer_sources "$dir/sources"
  printf '%s\n' "Package: *" "Pin: release n=$suite*" "Pin-Priority: -10" "" \
    "Package: docker.io docker-cli docker-buildx containerd tini-static" "Pin: release n=$suite*" "Pin-Priority: 990" \
    > "$dir/preferences/engine"
  local apt=(apt-get --quiet --yes --no-install-recommends
    -o Dir::Etc::SourceList=/dev/null -o "Dir::Etc::SourceParts=$dir/sources"
    -o "Dir::Etc::PreferencesParts=$dir/preferences"
    -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache::Archives=$dir/archives"
    -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
    -o Acquire::Languages=none -o Acquire::Retries=3 -o APT::Sandbox::User=root
    -o DPkg::Lock::Timeout=300 -o Dpkg::Use-Pty=0)
  # Without systemd nothing but this script may start the engine.
  if [ ! -d /run/systemd/system ] && [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' > $policy
    chmod 755 $policy
    own_policy=yes
  fi
  export DEBIAN_FRONTEND=noninteractive
  { "${apt[@]}" update && "${apt[@]}" install docker.io docker-cli docker-buildx containerd; } >/dev/null || status=$?
  [ -z "$own_policy" ] || rm -f $policy
  return "$status"
}

start_engine() {
  local mtu name args=()
  # A pid file left by an engine that was killed may name another process by now.
  for name in docker.pid docker/containerd/containerd.pid; do
    [ -s "/var/run/$name" ] || continue
    grep -Eqsx 'dockerd|containerd' "/proc/$(cat "/var/run/$name")/comm" || rm -f "/var/run/$name"
  done
  # Bridges must not promise more than the machine's own interface carries.
  name=$(ip -o route show default 2>/dev/null | sed -n '1s/.* dev \([^ ]*\).*/\1/p')
  mtu=$(cat "/sys/class/net/${name:-lo}/mtu" 2>/dev/null || echo 1500)
  [ "$mtu" -ge 1500 ] || args+=(--mtu "$mtu")
  setsid -f dockerd --data-root "$data_root" "${args[@]}" </dev/null >>"$log" 2>&1
}

# Where this machine may not raise limits (no CAP_SYS_RESOURCE, bit 24), `--ulimit memlock=-1` fails in runc.
clamp_limits() {
  local capabilities
  capabilities=$(sed -n 's/^CapEff:\t//p' /proc/self/status)
  [ $((16#$capabilities >> 24 & 1)) = 0 ] || return 0
  [ ! -e /etc/docker/daemon.json ] || grep -q runc-clamp /etc/docker/daemon.json || die "/etc/docker/daemon.json is there"
  mkdir -p /etc/docker
  install -m 755 "$here/runc-clamp" /usr/local/sbin/runc-clamp
  echo '{"runtimes": {"clamp": {"path": "/usr/local/sbin/runc-clamp"}}, "default-runtime": "clamp"}' > /etc/docker/daemon.json
  if engine_answers; then kill -HUP "$(cat /var/run/docker.pid)"; fi
}

[ "$(id -u)" = 0 ] || die "needs root"
if ! installed; then
  say "installing the engine from $suite"
  work=$(mktemp -d)
  trap 'rm -rf "$work"' EXIT
  install_engine "$work"
  hash -r
  installed || die "engine $(engine_version) or buildx $(buildx_version) is too old, or something is missing"
fi
clamp_limits
if ! engine_answers; then
  if [ -d /run/systemd/system ]; then systemctl enable --now docker; else start_engine; fi
  for _ in $(seq 120); do
    engine_answers && break
    sleep 0.5
  done
  engine_answers || { tail -n 20 "$log" >&2; die "the engine did not answer within 60 s"; }
fi
say "engine $(docker version --format '{{.Server.Version}}'), buildx $(buildx_version)"
