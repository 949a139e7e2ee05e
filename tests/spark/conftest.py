"""One Spark for all tests of this folder: local[3], three barrier tasks at a time."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def spark(root):
    from pyspark import SparkConf, SparkContext, SparkFiles

    os.environ["PYTHONPATH"] = os.pathsep.join([str(root), str(HERE), os.environ.get("PYTHONPATH", "")]).rstrip(":")
    os.environ.update(PYSPARK_PYTHON=sys.executable, SPARK_LOCAL_IP="127.0.0.1")
    settings = {
        "spark.ui.enabled": "false",
        "spark.barrier.sync.timeout": "60",
        "spark.python.worker.reuse": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    conf = SparkConf().setMaster("local[3]").setAppName("gang").setAll(list(settings.items()))
    with SparkContext(conf=conf) as context:
        context.setLogLevel("OFF")
        job = Path(SparkFiles.getRootDirectory()) / "job"
        job.mkdir()
        (job / "job.json").write_text("{}")
        yield context
