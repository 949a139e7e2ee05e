"""packaging/java.sh: which Java it takes, what it says where there is none, and that the one it unpacks runs Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAMS = """bash cat awk sed grep find dirname readlink realpath mkdir mktemp mv rm ln env sort ldd head cp
uname tr sh"""


def java_home(folder: Path, banner: str) -> Path:
    """A folder with a bin/java that answers -version with this banner."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "java").write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    (folder / "bin" / "java").chmod(0o755)
    return folder


@pytest.fixture
def ask(root: Path, tmp_path: Path):
    """Ask java.sh on a machine that has only PROGRAMS (and what is named in `more`) on its PATH, and no Java."""
    tools = tmp_path / "tools"
    tools.mkdir()

    def run(*more: Path, **env: str) -> subprocess.CompletedProcess[str]:
        for program in [*map(shutil.which, PROGRAMS.split()), *map(str, more)]:
            (tools / Path(program).name).unlink(missing_ok=True)
            (tools / Path(program).name).symlink_to(program)
        return subprocess.run(
            [root / "packaging" / "java.sh", tmp_path / "cache"],
            env={"PATH": str(tools), "JVM_FOLDER": str(tmp_path / "jvm"), **env},
            capture_output=True,
            text=True,
        )

    return run


@pytest.mark.parametrize("version", ["17.0.2", "21", "21.0.1"])
def test_java_home_is_taken(ask, tmp_path: Path, version: str) -> None:
    home = java_home(tmp_path / "mine", f'openjdk version "{version}" 2023-01-17')
    java_home(tmp_path / "jvm" / "other", 'openjdk version "17.0.9"')
    assert ask(JAVA_HOME=str(home)).stdout == f"{home}\n"


def test_java_on_path_is_taken_through_its_link(ask, tmp_path: Path) -> None:
    home = java_home(tmp_path / "mine", 'openjdk version "17.0.9" 2023-10-17')
    assert ask(home / "bin" / "java").stdout == f"{home}\n"


@pytest.mark.parametrize(
    "banner", ['java version "1.8.0_392"', 'openjdk version "11.0.2"', 'openjdk version "25"', "broken"]
)
def test_another_version_is_passed_over(ask, tmp_path: Path, banner: str) -> None:
    wrong = java_home(tmp_path / "wrong", banner)
    right = java_home(tmp_path / "jvm" / "right", 'openjdk version "17.0.9" 2023-10-17')
    assert ask(JAVA_HOME=str(wrong)).stdout == f"{right}\n"


def test_no_java_and_no_apt_is_one_clear_line(ask) -> None:
    done = ask()
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (4, "", 1)
    assert "install Java 17 or 21 and set JAVA_HOME" in done.stderr


SPARK_JOB = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
print(spark.sparkContext._jvm.System.getProperty("java.home"), spark.sparkContext.parallelize(range(10), 2).sum())
spark.stop()
"""


@pytest.mark.slow
def test_debian_s_java_is_unpacked_and_runs_spark(ask, tmp_path: Path) -> None:
    """Fetches Debian's package (40 MB) with apt, as any user, and runs a Spark job on it."""
    everything = [p for folder in ("/usr/bin", "/usr/sbin") for p in Path(folder).iterdir() if "java" not in p.name]
    done = ask(*everything)
    assert done.returncode == 0, done.stderr
    home = done.stdout.strip()
    assert home.startswith(str(tmp_path / "cache" / "java"))
    assert ask().stdout.strip() == home
    job = subprocess.run(
        [sys.executable, "-c", SPARK_JOB],
        env={**os.environ, "JAVA_HOME": home},
        capture_output=True,
        text=True,
    )
    assert job.stdout.split()[-2:] == [str(Path(home).resolve()), "45"], job.stderr
