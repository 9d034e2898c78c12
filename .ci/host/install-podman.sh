#!/usr/bin/env bash
# Install Debian's podman, for launch tests.  Needs root; safe to run again.
set -euo pipefail
command -v podman >/dev/null || {
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install podman catatonit >/dev/null
}
# podman asks for limits of its own choice; a machine without CAP_SYS_RESOURCE (bit 24) grants its own at most.
# A file, because conmon's exit command does not see CONTAINERS_CONF and then takes 20 s per run.
capabilities=$(sed -n 's/^CapEff:\t//p' /proc/self/status)
conf=/etc/containers/containers.conf.d/50-primus-ci.conf
if [ $((16#$capabilities >> 24 & 1)) = 0 ] && [ ! -e $conf ]; then
  mkdir -p "$(dirname $conf)"
  files=$(ulimit -Hn)
  processes=$(($(ulimit -Hu) < 32768 ? $(ulimit -Hu) : 32768))  # podman lowers its own further than it was given
  printf '[containers]\ndefault_ulimits = ["nofile=%s:%s", "nproc=%s:%s"]\n' \
    "$files" "$files" "$processes" "$processes" > $conf
fi
