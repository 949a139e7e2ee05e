"""What this machine offers a job: Spark, Java, a Hadoop configuration, the runtime."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Optional

from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.submit import archive, checks, cluster, uploads
from caffe_on_grid.submit.argv import Site


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def find(job: JobSpec, folder: Path, environ: Mapping[str, str]) -> Site:
    """Everything that `job` needs here; EnvironmentFault with the remedy for what is missing."""
    where = cluster.master(job.cluster.master, cores())
    if where.kind == "yarn":
        _check_hadoop(environ)
    home = spark_home(environ)
    java_home = check_java(environ, _java_wanted(home))
    packed, runtime = _runtime(job, where.kind)
    return Site(
        spark_submit=str(home / "bin" / "spark-submit"),
        spark_home=str(home),
        python=sys.executable,
        folder=str(folder),
        cores=cores(),
        java_home=java_home,
        archive=packed,
        runtime=runtime,
        submit_options=environ.get("SPARK_SUBMIT_OPTS", ""),
    )


def spark_home(environ: Mapping[str, str]) -> Path:
    """SPARK_HOME, else the home of the spark-submit on PATH, else the pyspark that is installed beside this package."""
    named = environ.get("SPARK_HOME")
    if named:
        return _spark(Path(named), f"SPARK_HOME={named}")
    program = shutil.which("spark-submit", path=environ.get("PATH"))
    above = Path(program).resolve().parent.parent if program else None
    if above and (above / "jars").is_dir():
        return above
    spec = importlib.util.find_spec("pyspark")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentFault("no Spark here: set SPARK_HOME, put spark-submit on PATH, or `pip install pyspark`")
    return _spark(Path(spec.submodule_search_locations[0]), "the installed pyspark")


def _spark(home: Path, named: str) -> Path:
    if not (home / "bin" / "spark-submit").is_file():
        raise EnvironmentFault(f"{named}: there is no bin/spark-submit in it; name the folder of a Spark installation")
    return home.resolve()


_SPARK_CORE = re.compile(r"spark-core_[\d.]+-(\d+)\.")


def _java_wanted(home: Path) -> int:
    """The oldest Java that the Spark in `home` runs on."""
    found = (_SPARK_CORE.match(path.name) for path in (home / "jars").glob("spark-core_*.jar"))
    return 17 if any(match and int(match[1]) >= 4 for match in found) else 8


_JAVA_VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_java(environ: Mapping[str, str], wanted: int) -> Optional[str]:
    """JAVA_HOME where it is set; EnvironmentFault where there is no Java, or one older than `wanted`."""
    home = environ.get("JAVA_HOME") or None
    program = shutil.which(f"{home}/bin/java" if home else "java", path=environ.get("PATH"))
    remedy = f"install Java {wanted} or later (Debian: openjdk-17-jre-headless) or set JAVA_HOME"
    if not program:
        raise EnvironmentFault(f"no Java {f'at JAVA_HOME={home}' if home else 'on PATH'}: {remedy}")
    match = _JAVA_VERSION.search(_answer([program, "-version"]))
    if not match:
        raise EnvironmentFault(f"{program} does not run: {remedy}")
    if int(match[1]) < wanted:
        raise EnvironmentFault(f"{program} is Java {match[1]}, and this Spark needs {wanted}: {remedy}")
    return home


def _answer(argv: list[str]) -> str:
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stderr + done.stdout


def _check_hadoop(environ: Mapping[str, str]) -> None:
    named = [(name, environ[name]) for name in cluster.CONFIGURATION if environ.get(name)]
    if not named:
        raise EnvironmentFault("--master yarn: set HADOOP_CONF_DIR to the folder of yarn-site.xml and core-site.xml")
    for name, folder in named:
        if not Path(folder).is_dir():
            raise EnvironmentFault(f"{name}={folder}: no such folder; it holds yarn-site.xml and core-site.xml")


def _runtime(job: JobSpec, kind: str) -> tuple[Optional[str], Optional[str]]:
    """(archive to ship, unpacked folder here); on YARN the archive is named, elsewhere the runtime is here."""
    asked, mode = job.runtime.path, job.engine.solver_mode
    if kind != "yarn":
        return None, str(
            archive.locate(asked, job.engine.name, mode == "gpu" or (mode == "auto" and checks.NVIDIA.exists()))
        )
    if asked is None:
        raise EnvironmentFault(
            "--master yarn: name the runtime's archive with --runtime (`caffe-on-grid pack` makes one)"
        )
    if Path(asked).is_dir():
        return None, asked
    return asked, str(archive.locate(uploads.here(asked))) if job.cluster.deploy_mode == "client" else None
