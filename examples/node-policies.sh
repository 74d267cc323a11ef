#!/bin/sh
# How a node divides a card's compute among the pods on it; full and short names are the
# same. Arguments: three nodes.
set -eu
kubectl label --overwrite node "$1" tke.cloud.tencent.com/qgpu-schedule-policy=fixed-share # or fs: never more than asked for
kubectl label --overwrite node "$2" tke.cloud.tencent.com/qgpu-schedule-policy=burst-share # or bs: that much, and what is idle
kubectl label --overwrite node "$3" tke.cloud.tencent.com/qgpu-schedule-policy=best-effort # or be, or no label: equal parts
