"""The guard with real processes: whatever dies first, nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from caffe_on_grid.gang import environment, guard
from caffe_on_grid.gang.processes import Guarded, end

INHERITED = {**os.environ, "PYTHONPATH": environment.package_root()}
STUBBORN = "trap '' TERM; echo ready; while :; do sleep 0.1; done"


def wait_until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, "it does not come true"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.fixture
def guarded(tmp_path):
    made = []

    def make(script, options=(), **env):
        command = ["/bin/sh", "-c", script]
        made.append(Guarded(command, {**INHERITED, **env}, tmp_path, tmp_path / f"out-{len(made)}", options))
        return made[-1]

    yield make
    end(made)


def family(program: Guarded) -> set[int]:
    return {program._guard.pid} | guard.descendants(program._guard.pid)


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137), ("kill -6 $$", 134)])
def test_the_exit_code_is_the_program_s(guarded, script, code):
    program = guarded(script)
    wait_until(lambda: program.code() is not None)
    assert program.code() == code


def test_the_end_of_the_program_is_the_end_of_what_it_started(guarded, tmp_path):
    program = guarded(f'setsid /bin/sh -c "{STUBBORN}" & while [ ! -e seen ]; do sleep 0.05; done')
    wait_until(lambda: "ready" in program.output())
    members = family(program)
    assert len(members) >= 3
    (tmp_path / "seen").touch()
    wait_until(lambda: program.code() == 0)
    assert not [pid for pid in members if alive(pid)]


def test_told_to_end_it_ends_even_the_stubborn(guarded, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    program = guarded(STUBBORN, ("--remove", str(folder)))
    wait_until(lambda: "ready" in program.output())
    members = family(program)
    end([program])
    assert program.code() == 143
    assert not [pid for pid in members if alive(pid)]
    assert folder.exists()


def test_a_dead_agent_is_noticed_and_its_folder_removed(tmp_path):
    folder = tmp_path / "removed"
    folder.mkdir()
    agent = (
        "import os, sys, time; from pathlib import Path; from caffe_on_grid.gang.processes import Guarded\n"
        "script, folder, output, removed = sys.argv[1:]; options = ('--remove', removed)\n"
        "made = Guarded(['/bin/sh', '-c', script], os.environ, Path(folder), Path(output), options)\n"
        "print(made._guard.pid, flush=True); time.sleep(600)"
    )
    arguments = [STUBBORN, str(tmp_path), str(tmp_path / "out"), str(folder)]
    running = subprocess.Popen(
        [sys.executable, "-c", agent, *arguments], stdout=subprocess.PIPE, text=True, env=INHERITED
    )
    with running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        wait_until(lambda: "ready" in (tmp_path / "out").read_text())
        members = {pid} | guard.descendants(pid)
        running.kill()
    wait_until(lambda: not [p for p in members if alive(p)])
    wait_until(lambda: not folder.exists())


def test_a_killed_guard_takes_its_program_along(guarded):
    program = guarded("echo ready; exec sleep 600")
    wait_until(lambda: "ready" in program.output())
    members = family(program)
    program._guard.kill()
    wait_until(lambda: not [pid for pid in members if alive(pid)])


def test_a_rank_works_in_its_folder_and_leaves_its_exit(guarded, tmp_path):
    (tmp_path / "rank-2").mkdir()
    program = guarded("pwd; kill -11 $$", ("--rank",), PMI_RANK="2")
    wait_until(lambda: program.code() is not None)
    assert (tmp_path / "rank-2.log").read_text() == f"{tmp_path / 'rank-2'}\n"
    assert (tmp_path / "rank-2.exit").read_text() == str(-signal.SIGSEGV)


def test_a_rank_that_was_told_to_end_leaves_no_exit(guarded, tmp_path):
    (tmp_path / "rank-0").mkdir()
    program = guarded("echo ready; exec sleep 600", ("--rank",), CAFFE_ON_GRID_RANK="0")
    wait_until(lambda: (tmp_path / "rank-0.log").exists() and "ready" in (tmp_path / "rank-0.log").read_text())
    end([program])
    assert not (tmp_path / "rank-0.exit").exists()


def test_a_program_that_is_not_there_is_said(tmp_path):
    (tmp_path / "rank-0").mkdir()
    program = Guarded(
        ["/no/such/python"], {**INHERITED, "CAFFE_ON_GRID_RANK": "0"}, tmp_path, tmp_path / "out", ("--rank",)
    )
    wait_until(lambda: program.code() is not None)
    end([program])
    assert (tmp_path / "rank-0.exit").read_text() == "127"
    assert "/no/such/python cannot be started: No such file" in (tmp_path / "rank-0.log").read_text()
