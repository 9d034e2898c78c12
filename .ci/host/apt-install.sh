#!/usr/bin/env bash
# Install Debian's packages for the tests, which start daemons of their own: none is started here, and some of Debian's
# listen on all interfaces.  Needs root; safe to run again.
#   apt-install.sh PACKAGE...
set -euo pipefail
! dpkg --status "$@" >/dev/null 2>&1 || exit 0
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install "$@" >/dev/null
