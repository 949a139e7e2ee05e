#!/bin/sh
# Which GPUs a Spark executor may use, as Spark wants to be told: one JSON object. Spark runs this in each executor's container.
#
# Where YARN isolates GPUs, nvidia-smi shows the container's own, and all of them are named. Where it does not, every container
# of the node sees them all: the first ones that no other executor of this application has taken are named. A GPU is taken by
# making a folder in the application's own folder on this node, which all its containers share and which ends with it.
amount=${CAFFE_ON_GRID_GPUS:-1}
unset CUDA_VISIBLE_DEVICES
listed=$(nvidia-smi --query-gpu=index,uuid --format=csv,noheader) || { echo "nvidia-smi failed on $(hostname)" >&2; exit 1; }
found= n=0
IFS='
'
for line in $listed; do
  index=${line%%,*} uuid=${line#*, }
  if [ "$n" -lt "$amount" ] && mkdir "../caffe-on-grid-gpu-$uuid" 2> /dev/null; then
    found="$found${found:+, }\"$index\"" n=$((n + 1))
  fi
done
if [ "$n" -lt "$amount" ]; then echo "only $n of $amount GPUs are free on $(hostname)" >&2; exit 1; fi
echo "{\"name\": \"gpu\", \"addresses\": [$found]}"
