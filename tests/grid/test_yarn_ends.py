"""Jobs on YARN that cannot go well: each ends in time, says why in one line, and leaves nothing."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import signal
import tarfile
from pathlib import Path

import nets
import pytest
from gateway import ARCHIVE, JARS, Gateway, application_ids, submitted
from spark.command import Ended, Running

FOREVER = nets.solver(iterations=10_000_000, test=False, more="snapshot: 500").replace("display: 5", "display: 100")
SMI = """#!/bin/sh
echo '0, GPU-aaaa, Fake'
echo '1, GPU-bbbb, Fake'
"""


@pytest.fixture(scope="module")
def gateway(grid, runtime: Path, tmp_path_factory: pytest.TempPathFactory):
    """With Spark's jars on the nodes, and a job that never ends."""
    made = Gateway(tmp_path_factory.mktemp("gateway"), runtime, grid=grid).settle(spark_yarn_jars=JARS)
    with made.stored(nets.write_lmdb(made.folder / "train")):
        nets.write_job(made.folder / "job", made.net("train"), FOREVER)
        yield made


def start(gateway: Gateway, name: str, mode: str, *more: object) -> Running:
    words = ["-conf", "job/solver.prototxt", "-model", f"{gateway.store}/{name}.caffemodel", "--deploy-mode", mode]
    return gateway.start("train", *words, "--node-label", "gpu", "--num-executors", 2, "--json", *more)


def end(gateway: Gateway, running: Running, code: int, name: str, others: int = 0) -> Ended:
    """With this code, one line of cause, no model, and nothing left in YARN or here."""
    ended = running.end()
    assert ended.code == code, ended.err
    assert ended.error
    running.await_nobody()
    gateway.nothing_left(ended, others)
    assert f"{name}.caffemodel" not in gateway.grid.fs("-ls", "-C", gateway.store)
    return ended


def record(gateway: Gateway, name: str) -> dict:
    """run.json of the only run of that name."""
    (uri,) = gateway.grid.fs("-ls", "-C", f"{gateway.store}/{name}/*/run.json").split()
    return json.loads(gateway.grid.fs("-cat", uri))


def executors(application: str) -> list[int]:
    """Pids of an application's executor JVMs."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue  # it has just ended
        if words[0].endswith("java") and application in words and "--executor-id" in words:
            found.append(int(entry.name))
    return found


def test_what_waits_and_what_is_killed(gateway: Gateway) -> None:
    """One job holds the nodes; two others wait, for a master and for executors; then an executor of the first dies."""
    first = start(gateway, "first", "cluster", "--driver-memory", "1500m")
    application = submitted(first)
    first.until(r"Iteration \d+, saved")

    late = start(gateway, "accepted", "cluster", "--driver-memory", "2200m", "--gang-timeout", "8s")
    ended = end(gateway, late, 6, "accepted", others=1)
    assert re.search(r"application_\S+ is ACCEPTED after \d+ s; YARN says: queue default, label gpu", ended.error)
    assert gateway.grid.ask(f"apps/{submitted_in(ended)}")["app"]["state"] == "KILLED"

    short = start(gateway, "short", "client", "--gang-timeout", "25s")
    ended = end(gateway, short, 6, "short", others=1)
    assert re.search(
        r"0 of 2 executors came within \d+ s; YARN says: queue default, label gpu: .* room for", ended.error
    )
    assert record(gateway, "short")["exit_code"] == 6

    os.kill(executors(application)[0], signal.SIGKILL)
    ended = end(gateway, first, 1, "first")
    assert "executor" in ended.error
    said = record(gateway, "first")
    assert (said["exit_code"], said["outcome"]) == (1, "failed")


def submitted_in(ended: Ended) -> str:
    (application,) = application_ids(ended.err)
    return application


@pytest.mark.parametrize(("mode", "number", "code"), [("cluster", signal.SIGTERM, 143), ("client", signal.SIGINT, 130)])
def test_signals_in_training(gateway: Gateway, mode: str, number: int, code: int) -> None:
    running = start(gateway, f"signal-{mode}", mode)
    running.until(r"Iteration \d+, saved")
    running.process.send_signal(number)
    ended = end(gateway, running, code, f"signal-{mode}")
    assert "signal" in ended.error or signal.Signals(number).name in ended.error
    said = record(gateway, f"signal-{mode}")
    assert (said["exit_code"], said["outcome"]) == (code, "interrupted")


def test_a_signal_while_it_waits_in_yarn(gateway: Gateway) -> None:
    running = start(gateway, "early", "cluster")
    application = submitted(running)
    running.process.send_signal(signal.SIGINT)
    end(gateway, running, 130, "early")
    assert gateway.grid.ask(f"apps/{application}")["app"]["state"] == "KILLED"


def archive(gateway: Gateway, name: str, python: bytes) -> str:
    """A runtime on HDFS that holds this as its bin/python."""
    path = gateway.folder / name
    with tarfile.open(path, "w:gz") as target:
        entry = tarfile.TarInfo("bin/python")
        entry.size, entry.mode = len(python), 0o755
        target.addfile(entry, io.BytesIO(python))
    gateway.grid.fs("-put", "-f", str(path), gateway.store)
    return f"hdfs://{gateway.store}/{name}"


def test_an_archive_for_another_machine(gateway: Gateway) -> None:
    """The container says it: an ELF header of another processor."""
    own = bytearray(Path(shutil.which("true") or "/bin/true").read_bytes())
    own[18:20] = (183).to_bytes(2, "little")  # e_machine: AArch64
    foreign = archive(gateway, "foreign.tgz", bytes(own))
    ended = end(gateway, start(gateway, "foreign", "cluster", "--runtime", foreign), 7, "foreign")
    assert re.search(r"for another processor .*bin/python: .*Syntax error|Exec format error", ended.error), ended.error


def test_an_archive_for_a_newer_c_library(gateway: Gateway) -> None:
    """The loader's own line, from the container."""
    own = Path(shutil.which("true") or "/bin/true").read_bytes()
    version = re.search(rb"GLIBC_2\.3\d", own) or re.search(rb"GLIBC_2\.\d+", own)
    assert version
    newer = own.replace(version[0], b"GLIBC_2.99"[: len(version[0])])
    name = archive(gateway, "newer.tgz", with_hash(own, newer, version[0], b"GLIBC_2.99"[: len(version[0])]))
    ended = end(gateway, start(gateway, "newer", "cluster", "--runtime", name), 7, "newer")
    assert re.search(r"version `GLIBC_2\.\d+' not found", ended.error), ended.error


def with_hash(own: bytes, newer: bytes, old_name: bytes, new_name: bytes) -> bytes:
    """The loader compares ELF hashes of version names before the names."""
    old, new = (elf_hash(name).to_bytes(4, "little") for name in (old_name, new_name))
    assert own.count(old) == 1
    return newer.replace(old, new)


def elf_hash(name: bytes) -> int:
    value = 0
    for letter in name:
        value = (value << 4) + letter
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value


def test_an_archive_that_is_cut_short(gateway: Gateway) -> None:
    """Here it is found before it is uploaded; on HDFS it is taken as it is, and YARN says what it met."""
    cut = gateway.folder / "cut.tgz"
    cut.write_bytes(ARCHIVE.read_bytes()[:2_000_000])
    ended = end(gateway, start(gateway, "cut", "cluster", "--runtime", cut), 3, "cut")
    assert re.search(r"cut\.tgz: not a runtime archive \(", ended.error)
    gateway.grid.fs("-put", "-f", str(cut), gateway.store)
    ended = end(gateway, start(gateway, "cut", "cluster", "--runtime", f"hdfs://{gateway.store}/cut.tgz"), 7, "cut")
    assert re.search(r"Failed to download resource .*cut\.tgz|gzip", ended.error), ended.error


def test_gpus_are_asked_of_yarn_and_told_apart(gateway: Gateway) -> None:
    """Our discovery script asks nvidia-smi, here a stand-in: each executor has its own; this runtime has no CUDA."""
    tools = gateway.folder / "tools"
    tools.mkdir()
    (tools / "nvidia-smi").write_text(SMI)
    (tools / "nvidia-smi").chmod(0o755)
    path = f"{tools}:/usr/bin:/bin"
    ended = end(
        gateway,
        start(gateway, "gpus", "cluster", "--solver-mode", "gpu", "--conf", f"spark.executorEnv.PATH={path}"),
        4,
        "gpus",
    )
    assert "built for CPU only" in ended.error
    (task,) = record(gateway, "gpus")["tasks"]
    assert sorted(device for e in task["executors"] for device in e["devices"]) == ["GPU-aaaa", "GPU-bbbb"]
    assert [len(e["devices"]) for e in task["executors"]] == [1, 1]


def test_hdfs_that_the_user_may_not_write(gateway: Gateway) -> None:
    gateway.grid.fs("-mkdir", "-p", f"{gateway.store}/closed")
    gateway.grid.fs("-chmod", "700", f"{gateway.store}/closed")
    words = ["-conf", "job/solver.prototxt", "-model", f"{gateway.store}/closed/net.caffemodel"]
    ended = gateway.run("train", *words, HADOOP_USER_NAME="nobody")
    assert ended.code == 5, ended.err
    assert "ermission" in ended.error
