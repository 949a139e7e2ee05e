"""The body of one barrier task: this executor's part of the gang, from the first word to the last process.

The main thread does all: processes are tied to the life of the thread that made them. While it waits in allGather it
cannot hear the driver; the driver ends it then by cancelling the Spark job group, whose SIGKILL the guards notice.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional

from pyspark import BarrierTaskContext, SparkFiles

from caffe_on_grid.comm import channel as channels
from caffe_on_grid.comm.channel import Channel
from caffe_on_grid.errors import ContactLost, EnvironmentFault, GridError, TrainingFailed, from_category
from caffe_on_grid.gang import devices, environment, hydra, placement, transport
from caffe_on_grid.gang.folder import SOCKET, GangFolder
from caffe_on_grid.gang.launch import Launch, Told
from caffe_on_grid.gang.placement import Facts, Placement
from caffe_on_grid.gang.plan import GangPlan
from caffe_on_grid.gang.processes import Guarded, end
from caffe_on_grid.gang.watch import Ranks
from caffe_on_grid.gang.watcher import Home, Watcher
from caffe_on_grid.spec import codec, report
from caffe_on_grid.spec.rank import RankSpec
from caffe_on_grid.storage import local, paths, registry

WORKER = ("-m", "caffe_on_grid.worker.main")
"""What a rank runs in the runtime's Python."""
DIAL_S = 60.0
LINGER_S = 3.0
"""A failed agent's task ends so much later: the other agents end theirs in order, before Spark kills them."""
ARCHIVE = "caffe_on_grid.tgz"
JOB = "job"


@dataclass(frozen=True)
class Task:
    """What Spark gives one barrier task."""

    executor: int
    gather: Callable[[str], list[str]]
    """allGather: everyone's text, in the order of executors."""
    gpus: tuple[str, ...]
    """GPU addresses that Spark assigned."""
    shipped: tuple[Path, ...]
    """Folders in which the job directory and the runtime may lie."""


@dataclass(frozen=True)
class Program:
    """What the ranks run; `ranks` is their number by executor (empty: `devices` on each)."""

    arguments: tuple[str, ...] = WORKER
    ranks: tuple[int, ...] = ()


def run(plan: GangPlan) -> list[str]:
    """Run this executor's ranks to their end; [] if all finished well, else raises after the driver has been told."""
    return conduct(plan, this_task(), Program())


def this_task() -> Task:
    """The barrier task that this process runs."""
    context = BarrierTaskContext.get()
    gpu = context.resources().get("gpu")
    shipped = (Path(SparkFiles.getRootDirectory()), Path.cwd())
    return Task(context.partitionId(), context.allGather, tuple(gpu.addresses) if gpu else (), shipped)


def conduct(plan: GangPlan, task: Task, program: Program) -> list[str]:
    """`run` with its surroundings as arguments."""
    channel = channels.dial(plan.driver, plan.key, DIAL_S)
    try:
        return _Agent(plan, task, program, channel).run()
    finally:
        channel.close()


class _Agent:
    """One executor's part, step by step."""

    def __init__(self, plan: GangPlan, task: Task, program: Program, channel: Channel) -> None:
        self._plan, self._job, self._task, self._program, self._channel = plan, plan.job, task, program, channel
        self._executor, self._host = task.executor, socket.gethostname()
        self._interface: Optional[str] = None
        self._executors = 1
        self._logs = paths.join(plan.run_folder, "logs")

    def run(self) -> list[str]:
        """All of it."""
        try:
            self._run()
        except Told as told:
            self._leave(False)
            raise told.cause from None
        except GridError as error:
            self._tell(error)
            self._leave(False)
            raise
        except Exception as error:
            known = self._known(error)
            self._tell(known)
            self._leave(False)
            raise known from error
        self._leave(True)
        return []

    def _run(self) -> None:
        facts, error = self._facts()
        self._send({"type": "joined", **_joined(facts)})
        everyone = [codec.loads(Facts, text, "facts") for text in self._gather(codec.dumps(facts))]
        self._executors = len(everyone)
        if error is not None:
            raise error
        placed = self._place(everyone)
        folder = GangFolder(Path.cwd() if "CONTAINER_ID" in os.environ else None)
        try:
            self._run_in(folder, everyone, placed)
        finally:
            folder.remove()

    def _gather(self, text: str) -> list[str]:
        """Everyone's texts; where Spark ends that, it has a cause elsewhere."""
        try:
            return self._task.gather(text)
        except Exception as error:
            ended = TrainingFailed(f"executor {self._executor}: Spark ended the gang: {type(error).__name__}: {error}")
            raise Told(ended) from error

    # -- facts and placement

    def _facts(self) -> tuple[Facts, Optional[GridError]]:
        """This executor's facts; where one cannot be had, its error travels instead, so that all end together."""
        wanted = self._program.ranks[self._executor] if self._program.ranks else self._job.engine.devices
        try:
            return self._gather_facts(wanted), None
        except GridError as error:
            bare = Facts(
                self._executor,
                self._host,
                "",
                os.getpid(),
                1,
                wanted,
                "",
                category=type(error).__name__,
                error=str(error),
                node=environment.node(os.environ),
                container=os.environ.get("CONTAINER_ID", ""),
            )
            return bare, error

    def _gather_facts(self, wanted: int) -> Facts:
        runtime = _shipped(self._task.shipped, ARCHIVE, "bin/python", self._job.runtime.path)
        self._interface, address = devices.network(self._job.sync.net_cidr, self._channel.local_host)
        return Facts(
            executor=self._executor,
            host=self._host,
            address=address,
            pid=os.getpid(),
            cpus=devices.cpus(),
            ranks=wanted,
            runtime=str(runtime),
            devices=() if self._job.engine.solver_mode == "cpu" else devices.gpus(self._task.gpus),
            assigned=bool(self._task.gpus),
            infiniband=devices.infiniband(),
            mpich=hydra.version(runtime),
            gpu_build=devices.gpu_build(runtime),
            blas_core=devices.blas_core(),
            node=environment.node(os.environ),
            container=os.environ.get("CONTAINER_ID", ""),
        )

    def _place(self, everyone: Sequence[Facts]) -> Placement:
        """The placement; every executor computes the same, executor 0 tells of it."""
        broken = next((f for f in everyone if f.error is not None), None)
        if broken is not None:
            raise Told(from_category(broken.category or "", f"executor {broken.executor}: {broken.error}"))
        try:
            placed = placement.place(everyone, self._job.engine.solver_mode, self._job.runtime.blas_threads)
            transport.check(self._job.sync.connection, everyone)
        except GridError as error:
            raise (error if self._executor == 0 else Told(error)) from None
        if self._executor == 0:
            self._send({"type": "placed", **_placed(placed, everyone)})
        return placed

    # -- processes

    def _run_in(self, folder: GangFolder, everyone: Sequence[Facts], placed: Placement) -> None:
        folder.prepare(self._rank_specs(folder, placed))
        own = everyone[self._executor]
        threads = placed.threads[self._executor]
        base = environment.base(os.environ, Path(own.runtime))
        env = environment.of_ranks(self._job, own, threads, self._interface, folder.path, base)
        ranks = [seat.rank for seat in placed.of(self._executor)]
        launch = Launch(folder, everyone, placed, self._executor, base, env, self._program.arguments)
        with folder.listen() as listener:
            try:
                launch.start(self._gather)
                self._watch(folder, listener, launch.programs, Ranks(ranks))
            finally:
                end(launch.programs)
                self._publish_logs(folder, ranks)

    def _rank_specs(self, folder: GangFolder, placed: Placement) -> list[RankSpec]:
        job_dir = _shipped(self._task.shipped, JOB, "job.json", None)
        return [
            RankSpec(
                job=self._job,
                task=self._plan.task,
                run_id=self._plan.run_id,
                rank=seat.rank,
                world=placed.world,
                local_rank=seat.local_rank,
                executor=seat.executor,
                host=seat.host,
                device=seat.device,
                job_dir=str(job_dir),
                scratch=str(folder.scratch(seat.rank)),
                report_socket=f"../{SOCKET}",
                progress_file=f"../{folder.progress_file(seat.rank).name}",
                run_folder=self._plan.run_folder,
                seed=self._plan.seed,
            )
            for seat in placed.of(self._executor)
        ]

    def _watch(self, folder: GangFolder, listener: socket.socket, programs: Sequence[Guarded], ranks: Ranks) -> None:
        home = Home(self._executor, self._host, self._logs, self._job.cluster.step_timeout_s)
        watcher = Watcher(self._channel, folder, listener, programs, ranks, home)
        try:
            watcher.run()
        finally:
            watcher.close()

    # -- the end

    def _publish_logs(self, folder: GangFolder, ranks: Sequence[int]) -> None:
        """The ranks' logs go to the run's folder; a log that cannot be written is told of and fails nothing."""
        target = self._logs
        try:
            storage = registry.connect(target)
            storage.make_folder(target)
            for log in (folder.log(rank) for rank in ranks):
                if log.exists():
                    storage.publish(log, paths.join(target, log.name))
        except (GridError, OSError) as error:
            line = report.to_line(report.Remarked(ranks[0], time.time(), f"logs not kept in {target}: {error}"))
            self._send_if_open({"type": "report", "line": line})

    def _known(self, error: Exception) -> GridError:
        """What the driver is told: a disk that is full, or a bug, else looks like an executor that was lost."""
        if isinstance(error, OSError):
            return local.translate(error, str(error.filename or "this node"))
        return TrainingFailed(f"unexpected {type(error).__name__}: {error}")

    def _tell(self, error: GridError) -> None:
        """A failure of the executor rather than of a rank: rank -1."""
        failed = report.Failed(-1, time.time(), 0, type(error).__name__, str(error), self._host)
        self._send_if_open({"type": "report", "line": report.to_line(failed)})

    def _leave(self, ok: bool) -> None:
        self._send_if_open({"type": "left", "executor": self._executor, "ok": ok})
        deadline = time.monotonic() + (LINGER_S if not ok and self._executors > 1 else 0.0)
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._channel.receive(left)
            except ContactLost:
                return

    def _send(self, message: dict[str, Any]) -> None:
        self._channel.send(message)

    def _send_if_open(self, message: dict[str, Any]) -> None:
        """A last word; where the driver is gone there is nobody to miss it."""
        try:
            self._channel.send(message)
        except ContactLost:
            return


def _shipped(roots: Sequence[Path], name: str, inside: str, given: Optional[str]) -> Path:
    """The folder `name` that Spark has unpacked here (or `given`, where that is a folder), known by what is inside."""
    candidates = [Path(given)] if given else []
    candidates += [root / name for root in roots]
    found = next((c for c in candidates if (c / inside).exists()), None)
    if found is None:
        tried = ", ".join(str(c / inside) for c in candidates)
        raise EnvironmentFault(f"nothing usable was shipped to {socket.gethostname()} as {name}: none of {tried}")
    return found.resolve()


def _joined(facts: Facts) -> dict[str, Any]:
    return {
        "executor": facts.executor,
        "host": facts.host,
        "pid": facts.pid,
        "cpus": facts.cpus,
        "devices": codec.encode(facts.devices),
        "node": facts.node,
        "container": facts.container,
    }


def _placed(placed: Placement, everyone: Sequence[Facts]) -> dict[str, Any]:
    runtime = {"path": everyone[0].runtime, "mpich": everyone[0].mpich if placed.world > 1 else None}
    return {
        "ranks": codec.encode(placed.seats),
        "runtime": runtime,
        "mode": placed.mode,
        "threads": list(placed.threads),
        "notes": list(placed.notes),
    }
