"""The real command as a process: what it says, how it ends, and which processes it has started."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

MARK = "HADOOP_COMMAND_TEST_MARK"
ROOT = Path(__file__).resolve().parent.parent.parent
DEADLINE_S = 200.0
Value = TypeVar("Value")


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def errors(self) -> list[str]:
        """Lines that begin with `error:`."""
        return [line for line in self.err.splitlines() if line.startswith("error:")]

    @property
    def error(self) -> str:
        """The one line of cause."""
        assert len(self.errors) == 1, self.err
        assert "Traceback" not in self.err, self.err
        return self.errors[0]

    def well(self) -> Ended:
        """Itself, if it has ended well."""
        assert self.code == 0, self.err
        assert not self.errors, self.err
        return self

    def json(self) -> dict:
        """The one object on stdout."""
        assert self.out.count("\n") == 1, self.out
        return json.loads(self.out)


@dataclass
class Command:
    """Starts `bin/caffe-on-grid` (or another line) in a folder, with a home and a temporary folder of its own."""

    folder: Path
    runtime: Path
    started: list[Running] = field(default_factory=list)

    def run(self, *words: object, prefix: Sequence[str] = (), **env: str) -> Ended:
        """Run to the end; `prefix` is a program that starts it."""
        return self.program([*prefix, *self.line(*words)], **env).end()

    def start(self, *words: object, **env: str) -> Running:
        """Start it."""
        return self.program(self.line(*words), **env)

    def line(self, *words: object) -> list[str]:
        """A command line."""
        return [str(ROOT / "bin" / "caffe-on-grid"), *map(str, words)]

    def shell(self, line: str) -> Ended:
        """Run a line as a user types it."""
        return self.program(["sh", "-c", line]).end()

    def program(self, argv: list[str], **env: str) -> Running:
        """Start any program as if it were the command."""
        running = Running(argv, self.folder, {**self.environment(), **env})
        self.started.append(running)
        return running

    def environment(self) -> dict[str, str]:
        """Nothing of the caller's configuration."""
        unwanted = ("CAFFE_ON_GRID_", "HADOOP_", "YARN_", "SPARK_", "PYSPARK_", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        for name in ("home", "temp"):
            (self.folder / name).mkdir(exist_ok=True)
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "TMPDIR": str(self.folder / "temp"),
            "CAFFE_ON_GRID_RUNTIME": str(self.runtime),
            "JDK_JAVA_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # these JVMs live for seconds
        }

    def close(self) -> None:
        """End whatever a failed test has left."""
        for running in self.started:
            running.close()

    def left_behind(self) -> list[str]:
        """What is still in the temporary folder."""
        return sorted(p.name for p in (self.folder / "temp").iterdir() if not p.name.startswith("hsperfdata_"))


class Running:
    """A command that has been started."""

    def __init__(self, argv: list[str], folder: Path, env: dict[str, str]) -> None:
        self.mark = uuid.uuid4().hex
        self.err = folder / f"{self.mark}.err"
        with self.err.open("w") as err:
            self.process = subprocess.Popen(
                argv,
                cwd=folder,
                env={**env, MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=err,
                text=True,
            )

    def said(self) -> str:
        """Its stderr so far."""
        return self.err.read_text()

    def until(self, words: str) -> re.Match[str]:
        """Wait until stderr holds a match of `words`."""
        return self.wait(lambda: re.search(words, self.said()), words)

    def wait(self, condition: Callable[[], Value], what: str) -> Value:
        """Wait until `condition` is true while the command runs."""
        limit = time.monotonic() + DEADLINE_S
        while not (value := condition()):
            assert self.process.poll() is None, f"it has ended before {what}:\n{self.said()}"
            assert time.monotonic() < limit, f"no {what} in {DEADLINE_S:g} s:\n{self.said()}"
            time.sleep(0.005)
        return value

    def end(self) -> Ended:
        """Wait for its end."""
        out, _ = self.process.communicate(timeout=DEADLINE_S)
        return Ended(self.process.returncode, out, self.said())

    def processes(self, words: str = "") -> dict[int, str]:
        """Living processes that the command started, by pid: their command lines (those with `words` in them)."""
        entries = (entry for entry in Path("/proc").glob("[0-9]*") if self._is_ours(entry))
        lines = {int(entry.name): _words(entry) for entry in entries}
        return {pid: line for pid, line in lines.items() if words in line}

    def _is_ours(self, entry: Path) -> bool:
        try:
            alive = (entry / "stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
            return alive and f"{MARK}={self.mark}".encode() in (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    def rank(self, number: int) -> int:
        """The pid of a rank that is one of several: the solver, not its feeders, which are its children."""
        lines = self.processes("python -m caffe_on_grid.worker.main")
        ranks = [pid for pid, line in lines.items() if "guard" not in line]
        wanted = f"PMI_RANK={number}".encode()
        own = [p for p in ranks if wanted in _environment(p)]
        (pid,) = [p for p in own if _parent(p) not in own]
        return pid

    def await_nobody(self) -> None:
        """Return once no process of it is left."""
        limit = time.monotonic() + 30
        while (left := self.processes()) and time.monotonic() < limit:
            time.sleep(0.05)
        assert not left, left

    def close(self) -> None:
        """End what is left of it."""
        for pid in (*self.processes(), self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.communicate()


def _words(entry: Path) -> str:
    try:
        return (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # a child of a rank's between fork and exec, which has ended
        return []


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def nothing_complete(model: Path) -> None:
    """No model, and no snapshot but whole ones: each manifest with files of the sizes that it says."""
    assert not model.exists()
    left = [p for p in model.parent.rglob("*") if p.is_file()]
    assert not [p for p in left if p.suffix == ".caffemodel" and p.parent.name != "snapshots"]
    for manifest in (p for p in left if p.parent.name == "snapshots" and p.suffix == ".json"):
        sizes = json.loads(manifest.read_text())["sizes"]
        assert {name: (manifest.parent / name).stat().st_size for name in sizes} == sizes


def link_runtime(runtime: Path, folder: Path, without: str) -> Path:
    """A copy of the runtime by links, without those programs of bin/ whose names begin with `without`."""
    source = runtime.resolve()
    (folder / "bin").mkdir(parents=True)
    for entry in source.iterdir():
        if entry.name != "bin":
            (folder / entry.name).symlink_to(entry)
    for entry in (source / "bin").iterdir():
        if not entry.name.startswith(without):
            (folder / "bin" / entry.name).symlink_to(entry)
    return folder
