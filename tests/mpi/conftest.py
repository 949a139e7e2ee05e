"""Real ranks: programs of tests/mpi/programs under the runtime's mpiexec."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
DEADLINE_S = 200.0


@pytest.fixture
def ranks(runtime, runtime_env, tmp_path):
    """`ranks(n, "program.py", *args)` → CompletedProcess; ends the whole process group if the deadline passes."""

    def start(world: int, program: str, *args: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [runtime / "bin" / "mpiexec", "-n", str(world), runtime / "bin" / "python", PROGRAMS / program, *args]
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=tmp_path,
            env={**runtime_env, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=DEADLINE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        return subprocess.CompletedProcess(command, process.returncode, output, "")

    return start
