"""Runs real ranks of the worker room without Spark: the tests' own little agent around mpiexec."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from caffe_on_grid.spec import codec
from caffe_on_grid.spec.job import JobSpec
from caffe_on_grid.spec.rank import Device, RankSpec
from caffe_on_grid.spec.report import Failed, Progress, Report, from_line


@dataclass
class Outcome:
    """What the ranks said and how they ended."""

    code: int
    reports: list[Report]
    logs: dict[int, str]
    output: str = ""

    def of(self, kind: type) -> list:
        return [r for r in self.reports if isinstance(r, kind)]

    @property
    def failure(self) -> Optional[Failed]:
        failures = sorted(self.of(Failed), key=lambda r: r.time)
        return failures[0] if failures else None


@dataclass
class Ranks:
    """Starts ranks of one job in a folder."""

    runtime: Path
    env: dict[str, str]
    folder: Path
    seed: int = 7
    lines: list[str] = field(default_factory=list)

    def run(self, job: JobSpec, job_dir: Path, world: int = 1, task: str = "train", timeout: float = 240) -> Outcome:
        gang = self.folder / f"gang-{len(list(self.folder.iterdir()))}"
        gang.mkdir()
        for rank in range(world):
            self._prepare(gang, rank, world, job, job_dir, task)
        lines: list[str] = []
        stops = [self._listen(gang / f"rank-{rank}", lines) for rank in range(world)]
        try:
            done = subprocess.run(
                self._command(world),
                env={
                    **self.env,
                    "CAFFE_ON_GRID_GANG_DIR": str(gang),
                    **({"CAFFE_ON_GRID_RANK": "0"} if world == 1 else {}),
                },
                capture_output=True,
                text=True,
                timeout=timeout,
                cwd="/",
            )
        finally:
            for stop in stops:
                stop()
        logs = {r: (gang / f"rank-{r}.log").read_text() for r in range(world) if (gang / f"rank-{r}.log").exists()}
        return Outcome(done.returncode, [from_line(line) for line in lines], logs, done.stdout + done.stderr)

    def _command(self, world: int) -> list[str]:
        program = [str(self.runtime / "bin/python"), "-m", "caffe_on_grid.worker.main"]
        return program if world == 1 else [str(self.runtime / "bin/mpiexec"), "-n", str(world), *program]

    def _prepare(self, gang: Path, rank: int, world: int, job: JobSpec, job_dir: Path, task: str) -> None:
        scratch = gang / f"rank-{rank}"
        scratch.mkdir()
        (scratch / "progress").write_bytes(bytes(Progress.SIZE))
        spec = RankSpec(
            job=job,
            task=task,
            run_id="test-run",
            rank=rank,
            world=world,
            local_rank=rank,
            executor=0,
            host="here",
            device=Device("cpu"),
            job_dir=str(job_dir),
            scratch=str(scratch),
            report_socket="report.sock",
            progress_file="progress",
            run_folder=str(self.folder / "run"),
            seed=self.seed,
        )
        (gang / f"rank-{rank}.json").write_text(json.dumps(codec.encode(spec)))

    def _listen(self, scratch: Path, lines: list[str]):
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        folder = os.open(scratch, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{folder}/report.sock")  # the path itself may be longer than an address
        os.close(folder)
        server.listen(1)

        def serve() -> None:
            try:
                peer, _ = server.accept()
            except OSError:  # the ranks have ended, and this one has never come
                return
            with peer, peer.makefile() as stream:
                lines.extend(stream)

        thread = threading.Thread(target=serve)
        thread.start()

        def stop() -> None:
            server.shutdown(socket.SHUT_RDWR)  # wakes a thread that still waits for its rank
            thread.join(70)
            server.close()

        return stop
