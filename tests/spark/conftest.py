"""A Spark for the gang's tests: local[3], three barrier tasks at a time."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def spark(root):
    from pyspark import SparkConf, SparkContext, SparkFiles

    settings = {
        "spark.ui.enabled": "false",
        "spark.barrier.sync.timeout": "60",
        "spark.python.worker.reuse": "false",
        "spark.python.task.killTimeout": "100ms",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    conf = SparkConf().setMaster("local[3]").setAppName("gang").setAll(list(settings.items()))
    folders = os.pathsep.join([str(root), str(HERE)])
    conf.setExecutorEnv("PYTHONPATH", folders)  # a JVM that an earlier module has started keeps its own environment
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", folders)
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        context = SparkContext(conf=conf)
        context.setLogLevel("OFF")
        job = Path(SparkFiles.getRootDirectory()) / "job"
        job.mkdir()
        (job / "job.json").write_text("{}")
        yield context
        context.stop()
        gc.collect()  # pyspark's sockets: their warnings are ignored here, and errors in the next module
