"""The grid as tests see it: daemons, HDFS, YARN's REST, and spark-submit with what makes it quick."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pyspark

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "packaging" / "grid" / "grid.sh"
QUICK_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
UNFINISHED = "NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING"
TAG = f"tests-{os.getpid()}"
"""Every application of this session carries it (spark.yarn.tags): the fixtures kill and show no other."""


@dataclass(frozen=True)
class Grid:
    home: Path
    hdfs: str = "hdfs://127.0.0.1:19000"
    webhdfs: str = "webhdfs://127.0.0.1:19870"
    yarn: str = "http://127.0.0.1:18088"
    labelled_port: str = "18051"
    plain_port: str = "18041"

    @property
    def conf(self) -> Path:
        return self.home / "conf"

    def script(self, *args: str, check: bool = True) -> str:
        done = subprocess.run(
            [str(SCRIPT), *args],
            env={**self.environment(), "GRID_HOME": str(self.home)},
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert not check or done.returncode == 0, f"grid.sh {args} → {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def fs(self, *args: str) -> str:
        return self.script("run", "org.apache.hadoop.fs.FsShell", *args)

    def admin(self, *args: str) -> str:
        return self.script("run", "org.apache.hadoop.hdfs.tools.DFSAdmin", *args)

    def running(self) -> bool:
        return "down" not in self.script("status")

    def ask(self, path: str) -> dict:
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"{self.yarn}/ws/v1/cluster/{path}", timeout=10
        ) as answer:
            return json.loads(answer.read())

    def applications(self, query: str = "") -> list[dict]:
        return ((self.ask(f"apps?{query}").get("apps") or {}).get("app")) or []

    def unfinished(self) -> list[str]:
        return [application["id"] for application in self.applications(f"states={UNFINISHED}&applicationTags={TAG}")]

    def kill(self, application: str) -> None:
        request = urllib.request.Request(
            f"{self.yarn}/ws/v1/cluster/apps/{application}/state?user.name={os.environ.get('USER', 'root')}",
            json.dumps({"state": "KILLED"}).encode(),
            {"Content-Type": "application/json"},
            method="PUT",
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=10).close()

    def logs(self, application: str) -> str:
        return self.script("logs", application, check=False)

    def environment(self) -> dict[str, str]:
        """What a gateway's shell has: the Hadoop configuration and Spark, and nothing that names this checkout."""
        keep = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG", "TMPDIR", "JAVA_HOME", "USER")}
        return {
            **keep,
            "HADOOP_CONF_DIR": str(self.conf),
            "SPARK_HOME": str(Path(pyspark.__file__).parent),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_SUBMIT_OPTS": QUICK_JVM,
            "PYSPARK_PYTHON": sys.executable,
        }

    def quick(self, mode: str) -> list[str]:
        """spark-submit's options for a small, quick job: the machine's own Spark jars, small and fast JVMs."""
        pairs = {
            "spark.ui.enabled": "false",
            "spark.yarn.jars": f"local:{Path(pyspark.__file__).parent}/jars/*",
            "spark.yarn.tags": TAG,
            "spark.yarn.maxAppAttempts": "1",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.yarn.am.memory": "512m",
            "spark.yarn.am.extraJavaOptions": QUICK_JVM,
            "spark.executor.extraJavaOptions": QUICK_JVM,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.locality.wait": "0",
        }
        drivers = {
            "cluster": ["--conf", f"spark.driver.extraJavaOptions={QUICK_JVM}"],
            "client": ["--driver-java-options", QUICK_JVM],
        }
        options = [word for pair in pairs.items() for word in ("--conf", "=".join(pair))]
        return [
            *options,
            *drivers[mode],
            "--driver-memory",
            "512m",
            "--executor-memory",
            "512m",
            "--executor-cores",
            "1",
        ]

    def spark_submit(self, mode: str, *args: str, timeout: float = 300) -> subprocess.CompletedProcess[str]:
        """Text of stdout and stderr; an application of a submission that ran out of time is the fixtures' to kill."""
        command = [
            str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
            "--master",
            "yarn",
            "--deploy-mode",
            mode,
        ]
        return subprocess.run(
            [*command, *self.quick(mode), *args],
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    def stdout(self, application: str, word: str) -> list[str]:
        """Lines with `word` in what the application's containers printed."""
        files = self.home.glob(f"nm?/logs/{application}/*/stdout")
        return [line for file in files for line in file.read_text().splitlines() if word in line]

    def wait_ended(self, application: str, seconds: float = 60) -> dict:
        end = time.monotonic() + seconds
        while (found := self.ask(f"apps/{application}")["app"])["state"] in UNFINISHED.split(","):
            assert time.monotonic() < end, f"{application} is still {found['state']}"
            time.sleep(0.2)
        return found
