"""A log or a disk that takes nothing more: the exit code stays true, and a job goes on without words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from caffe_on_grid import cli
from caffe_on_grid.errors import EnvironmentFault
from caffe_on_grid.metrics.progress import Plain


@pytest.fixture
def full():
    with Path("/dev/full").open("w", buffering=1) as stream:
        yield stream
        with pytest.raises(OSError, match="No space left"):
            stream.close()


def test_a_job_does_not_die_of_a_log_that_takes_nothing(full):
    """The disk of the log was full, or the terminal of a job in the background gone: the application was killed."""
    display = Plain(full)
    display.lines(["one", "two"])
    display.lines(["three"])


def test_a_remark_that_cannot_be_told_keeps_no_job_from_starting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("net.prototxt").write_text('layer { name: "d" type: "Input" top: "d" input_param { shape { dim: 1 } } }')
    Path("s.prototxt").write_text('net: "net.prototxt" lr_policy: "fixed" snapshot: 9 max_iter: 1')
    program = "from caffe_on_grid.cli import main; main()"
    words = ["train", "-conf", "s.prototxt", "-model", "m", "--master", "local[1]", "--dry-run"]
    command = [sys.executable, "-c", program, *words]
    whole = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "note: solver: snapshot 9 > max_iter 1" in whole.stderr
    with Path("/dev/full").open("w") as log:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, timeout=60, check=True)
    assert "spark-submit" in done.stdout


def test_the_exit_code_is_that_of_the_error_where_it_cannot_be_told():
    with Path("/dev/full").open("w") as log:
        program = "from caffe_on_grid.cli import main; main(['nonsense'])"
        done = subprocess.run([sys.executable, "-c", program], stderr=log, timeout=60, check=False)
    assert done.returncode == 2


def test_no_file_gets_the_number_of_a_stream_that_is_closed():
    """A temporary file became fd 1 of a program's child, which then wrote Caffe's log over its own answer."""
    program = "import os; from caffe_on_grid import cli; cli._fill_closed(); os._exit(min(os.dup(2), 9))"
    done = subprocess.run(["sh", "-c", '"$@" <&- >&-', "", sys.executable, "-c", program], timeout=60, check=False)
    assert done.returncode == 3


def test_a_full_disk_is_told_in_a_line(monkeypatch, capsys):
    def full(self, argv, **settings):
        with Path("/dev/full").open("w") as out:
            out.write("x")

    monkeypatch.setattr(cli.click.Group, "main", full)
    with pytest.raises(SystemExit) as ended:
        cli.main(["config", "show"])
    assert ended.value.code == EnvironmentFault.exit_code
    assert capsys.readouterr().err == "error: this machine: No space left on device\n"
