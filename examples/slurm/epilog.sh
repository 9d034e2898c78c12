#!/bin/sh
# A Slurm Epilog: removes the containers that a job of primus has left on this node.  The launcher ends them itself,
# however it ends; this is for the case that slurmstepd dies before it.  In slurm.conf: Epilog=/path/to/epilog.sh
[ -n "$SLURM_JOB_ID" ] || exit 0
PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin
for engine in docker podman; do
  command -v $engine >/dev/null || continue
  $engine ps --all --quiet --filter "label=io.primus.job=$SLURM_JOB_ID" | while read -r container; do
    $engine rm --force "$container" >/dev/null
  done
done
exit 0
