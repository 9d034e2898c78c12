#!/usr/bin/env bash
# Install Debian's Slurm, for tests/slurm, which start clusters of their own.  Needs root; safe to run again.
set -euo pipefail
for tool in munged slurmctld slurmd sbatch; do
  command -v $tool >/dev/null || missing=1
done
[ -n "${missing:-}" ] || exit 0
# Packages start no daemon of their own here: the machine may have no init, and the tests want other settings.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' > $policy
  chmod 755 $policy
  trap 'rm -f $policy' EXIT
fi
apt-get -qq update
DEBIAN_FRONTEND=noninteractive apt-get -qq --yes --no-install-recommends install \
  munge slurm-client slurmctld slurmd >/dev/null
