#!/usr/bin/env bash
# Make small Debian images with Python from the machine's own apt mirror: they stand in for the OS image of
# docker-bake.hcl where no registry can be reached.  make-os-images.sh [SUITE...]; needs root; safe to run again.
#   primus-ci/os:bookworm  Python 3.11        primus-ci/os:trixie  Python 3.13
set -euo pipefail

# The first mirror of the running suite, from sources of either format.
mirror() {
  local suite
  suite=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
  { grep -hEs "^deb .*\b$suite\b" /etc/apt/sources.list /etc/apt/sources.list.d/*.list
    grep -lEs "^Suites:.*\b$suite\b" /etc/apt/sources.list.d/*.sources | xargs --no-run-if-empty grep -h '^URIs:'
  } | grep -oE '[a-z]+://[^ ]+' | head -n 1
}

[ $# -gt 0 ] || set -- bookworm trixie
command -v mmdebstrap >/dev/null || {
  apt-get -qq update
  DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install mmdebstrap >/dev/null
}
for suite in "$@"; do
  tag=primus-ci/os:$suite
  if docker image inspect "$tag" >/dev/null 2>&1; then continue; fi
  # The copyright files stay: these images hold other people's software.
  mmdebstrap --quiet --variant=apt --include=python3,python3-venv,ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --dpkgopt=force-unsafe-io --aptopt='APT::Install-Recommends "false"' --aptopt='Acquire::Languages "none"' \
    "$suite" - "$(mirror)" |
    docker import --change 'CMD ["bash"]' \
      --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' - "$tag" >/dev/null
  echo "[make-os-images] $tag" >&2
done
