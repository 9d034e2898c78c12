#!/usr/bin/env bash
# Install Debian's docker-registry and skopeo, for tests/registry, which start registries of their own.  skopeo is a
# second opinion on digests there; the launcher does not need it.  Needs root; safe to run again.
set -euo pipefail
for tool in docker-registry skopeo htpasswd; do
  command -v $tool >/dev/null || missing=1
done
[ -n "${missing:-}" ] || exit 0
# Packages start no daemon of their own here: Debian's registry listens on all interfaces.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install \
  apache2-utils docker-registry skopeo >/dev/null
