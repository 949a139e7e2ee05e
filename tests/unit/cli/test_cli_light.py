"""What a `--help` loads, and the programs that are started in the runtime's Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "numpy",
    "pyspark",
    "google",
    "rich",
    "yaml",
    "lmdb",
    "cv2",
    "matplotlib",
    "mpi4py",
    "caffe",
    "torch",
    "zipfile",
}
ROOMS = {
    f"caffe_on_grid.{room}" for room in ("proto", "submit", "driver", "gang", "worker", "engine", "data", "storage")
}


@pytest.mark.parametrize(
    "words", [["--help"], ["train", "--help"], ["submit", "--help"], ["pack", "--help"], ["--version"]]
)
def test_help_loads_nothing_heavy(words: list[str], root: Path) -> None:
    code = f"""import sys
from caffe_on_grid import cli
try:
    cli.main({words!r})
except SystemExit as end:
    print(end.code, *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    code_word, *modules = done.stdout.splitlines()[-1].split()
    assert code_word == "0"
    assert not (HEAVY | ROOMS) & set(modules)


def test_a_dry_run_loads_no_numpy(root: Path) -> None:
    code = "import caffe_on_grid.submit.start, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert not {"numpy", "pyspark", "lmdb", "cv2"} & set(done.stdout.split())


def test_the_command_of_the_checkout(root: Path, tmp_path: Path) -> None:
    done = subprocess.run([root / "bin" / "caffe-on-grid", "--version"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("caffe-on-grid 0.")


MODULES = {verb: f"worker.{verb}" for verb in ("inspect", "export")} | {
    "convert": "data.convert",
    "time": "worker.timing",
}


@pytest.fixture
def program(root: Path, tmp_path: Path):
    """`program(verb, words…)`: the verb with a runtime whose `python` shows what it was given."""
    python = tmp_path / "runtime" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\nprintf "%s\\n" "$PYTHONPATH" "$SECRET" "$@"\nexit 7\n')
    python.chmod(0o755)
    env = {
        "PATH": "/usr/bin:/bin",
        "HOME": str(tmp_path),
        "CAFFE_ON_GRID_RUNTIME": str(tmp_path / "runtime"),
        "SECRET": "x",
    }
    return lambda *words: subprocess.run(
        [root / "bin" / "caffe-on-grid", *words], cwd=tmp_path, env=env, capture_output=True, text=True
    )


@pytest.mark.parametrize(
    ("verb", "told"), [("convert", []), ("inspect", ["--engine", "torch"]), ("time", ["--engine", "torch"])]
)
def test_programs_are_told_the_engine(program, verb: str, told: list[str]) -> None:
    """A leading --engine chooses the runtime, and what builds nets."""
    done = program(verb, "--engine", "torch", "x.prototxt")
    assert (done.returncode, done.stderr) == (7, "")
    assert done.stdout.splitlines()[2:] == ["-m", f"caffe_on_grid.{MODULES[verb]}", *told, "x.prototxt"]


def test_an_unknown_engine_is_refused(program) -> None:
    done = program("time", "--engine", "torhc", "x.prototxt")
    assert done.returncode == 2 and "did you mean 'torch'" in done.stderr


@pytest.mark.parametrize("verb", MODULES)
def test_programs_get_their_words_untouched_and_give_their_code(program, verb: str, tmp_path: Path) -> None:
    words = ["-model", "it's a net.prototxt", "--help", "--", "-gpu=0", ""]
    done = program(verb, *words)
    assert (done.returncode, done.stderr) == (7, "")
    path, secret, *given = done.stdout.splitlines()
    assert path.startswith(str(tmp_path / ".cache" / "caffe-on-grid"))
    assert secret == ""
    assert given == ["-m", f"caffe_on_grid.{MODULES[verb]}", *words]
