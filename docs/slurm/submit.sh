#!/bin/bash
# RECORDINGS=/nfs/survey MODEL=/nfs/runs/birds OUT=/nfs/detections docs/slurm/submit.sh 100
# 100 shards side by side, then one job that makes the tables. Submitted again after a stop, it resumes.

set -euo pipefail

shards=${1:?how many shards}
here=$(dirname "$0")
export RECORDINGS MODEL OUT SHARDS=$shards

array=$(sbatch --parsable --array="0-$((shards - 1))" --export=ALL "$here/detect.sbatch")
sbatch --dependency="afterany:$array" --job-name=mast-tables --mem=8G --time=04:00:00 --export=ALL --wrap \
    'mast detect "$RECORDINGS" --model "$MODEL" --out "$OUT" --formats csv,partitioned --quiet || [ $? -eq 4 ]'
