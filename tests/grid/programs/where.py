"""Prints where the driver and the executors of a two-task barrier stage run, one JSON line each.

With an argument, task 1 also fills that many MiB of memory and waits for the node to notice.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from pyspark import BarrierTaskContext
from pyspark.sql import SparkSession

MIB = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def where() -> dict:
    keys = ("CONTAINER_ID", "NM_HOST", "NM_PORT", "HADOOP_CONF_DIR", "HADOOP_TOKEN_FILE_LOCATION")
    found = {key: os.environ.get(key) for key in keys}
    return {**found, "spark_conf": Path("__spark_conf__/__hadoop_conf__/core-site.xml").is_file()}


def task(_):
    context = BarrierTaskContext.get()
    rank = context.partitionId()
    if rank == 1 and MIB:
        block = bytearray(os.urandom(1 << 20)) * MIB
        time.sleep(30)
        del block
    gpu = context.resources().get("gpu")
    mine = {"rank": rank, "gpu": gpu.addresses if gpu else None, **where()}
    yield from (json.loads(line) for line in context.allGather(json.dumps(mine)) if rank == 0)


if __name__ == "__main__":
    spark = SparkSession.builder.appName("where").getOrCreate()
    print("APPLICATION", spark.sparkContext.applicationId)
    print("DRIVER", json.dumps(where()))
    for found in spark.sparkContext.parallelize(range(2), 2).barrier().mapPartitions(task).collect():
        print("EXECUTOR", json.dumps(found), flush=True)
    spark.stop()
