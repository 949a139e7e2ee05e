"""The torch engine: Caffe's nets, solvers and files on PyTorch, to the same numbers.

On a CPU the arrays that the engine gives are the tensors' own memory, as pycaffe's are. On a GPU they are copies in
pinned host memory, made when asked for and copied back before the device computes again (see `memory.Views`).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch

from caffe_on_grid.engine import native
from caffe_on_grid.engine.api import (
    Array,
    Blobs,
    EnginePlan,
    Hooks,
    LayerInfo,
    LayerTime,
    Snapshot,
    StepResult,
    WeightsReport,
)
from caffe_on_grid.engine.torch import built, files
from caffe_on_grid.engine.torch.layers import LAYERS
from caffe_on_grid.engine.torch.memory import Views, copied
from caffe_on_grid.engine.torch.net import Net
from caffe_on_grid.engine.torch.parameter import Parameter
from caffe_on_grid.engine.torch.random import Stream
from caffe_on_grid.engine.torch.ready import Ready
from caffe_on_grid.engine.torch.solver import Solver
from caffe_on_grid.engine.torch.timing import time_layers
from caffe_on_grid.errors import ConfigError, EnvironmentFault
from caffe_on_grid.proto import schema, shapes
from caffe_on_grid.spec.codec import suggestion


def version() -> str:
    """PyTorch's version, e.g. "2.4.1"."""
    return str(torch.__version__)


def create(plan: EnginePlan) -> TorchEngine:
    """Build the nets of `plan`; raises ConfigError for what Caffe would refuse, EnvironmentFault without the device."""
    return TorchEngine(plan)


class TorchEngine:
    """A solver with its nets, or TEST nets alone where the plan has no TRAIN net (see engine.api.Engine)."""

    def __init__(self, plan: EnginePlan) -> None:
        native.check_plan(plan, LAYERS)
        self.name = f"torch {version()}"
        self.iteration = 0
        self._plan = plan
        self._device = _device(plan.gpu)
        self._stream = Stream(0)
        self.reseed(plan.seed + plan.rank if plan.seed >= 0 else int.from_bytes(os.urandom(4), "little"))
        self._train = self._net(plan.train_net, schema.TRAIN, None)
        self._tests: list[Net] = []
        for message in plan.test_nets:
            owner = self._train or (self._tests[0] if self._tests else None)
            self._tests.append(self._net(message, schema.TEST, owner))
        faults = [] if plan.strict else self._main.warnings  # strict: they are reproduced
        self.warnings = (*faults, *self._main.differences, *_differences(plan.solver))
        """What Caffe would do otherwise; its own faults in gradients are not among them with `strict`."""
        self._solver = Solver(plan.solver, self._main.learnable) if self._train is not None else None
        self._inputs = {id(net): built.inputs(net, self._device) for net in self._nets}
        self._shapes = {id(net): built.shapes(net) for net in self._nets}
        self.share_memory(copies=self._device.type != "cpu")

    def _net(self, message: Any, phase: int, owner: Optional[Net]) -> Any:
        if message is None:
            return None
        shapes.sound(message)
        bare = native.bare_net(message)
        return Net(bare, phase, self._device, self._stream, share=owner, strict=self._plan.strict)

    @property
    def _nets(self) -> list[Net]:
        return [net for net in (self._train, *self._tests) if net is not None]

    @property
    def _main(self) -> Net:
        """The net that owns the parameters."""
        return self._nets[0]

    def share_memory(self, copies: bool) -> None:
        """Arrays of parameters and gradients; `copies`: in host memory of their own, given back before each use."""
        every = self._main.learnable
        learning = [p for p in every if p.learns and p.lr_mult != 0]
        self.params: Blobs = Views(len(learning), lambda at: learning[at].data, copies)
        self.grads: Blobs = Views(len(learning), lambda at: learning[at].diff, copies)
        measured = [p for p in every if not p.learns]
        self.statistics: Blobs = Views(len(measured), lambda at: measured[at].data, copies)
        self._all: Blobs = Views(len(every), lambda at: every[at].data, copies)
        self._views: Sequence[Any] = (self.params, self.grads, self.statistics, self._all)
        self._places = _places(every, learning)
        self._deferred = copies

    def all_params(self) -> Blobs:
        """Every parameter blob once, in net order."""
        return self._all

    def _give_back(self) -> None:
        for views in self._views:
            views.give_back()

    def step(self, batches: Iterator[Mapping[str, Array]], hooks: Hooks) -> StepResult:
        """One iteration: takes iter_size batches, each valid until the next is asked for."""
        if self._solver is None or self._train is None:
            raise RuntimeError("an engine without a TRAIN net cannot step")
        self._give_back()
        for parameter in self._main.learnable:
            parameter.clear()
        hooks.on_start()
        self._give_back()
        losses = [self._pass(batches, hooks, last) for last in self._passes()]
        hooks.on_gradients()
        self._give_back()
        rate = self._solver.update()
        self._train.verify()
        loss = float(torch.stack(losses).double().mean())
        self.iteration = self._solver.iteration
        return StepResult(loss, {name: copied(self._train.blob(name)) for name in self._train.outputs}, rate)

    def _passes(self) -> list[bool]:
        """For each pass of an iteration whether it is the last."""
        count = self._plan.solver.iter_size
        return [at == count - 1 for at in range(count)]

    def _pass(self, batches: Iterator[Mapping[str, Array]], hooks: Hooks, last: bool) -> torch.Tensor:
        net: Any = self._train
        loss: torch.Tensor = net.forward(self._inputs[id(net)].take(next(batches)))
        ready = Ready(self._places, hooks, self.grads, self._deferred)
        net.on_ready = ready if last else None
        net.backward()
        ready.finish()
        return loss

    def evaluate(self, net: int, blobs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Forward of TEST net `net` with the present parameters; its outputs, copied, in Caffe's order (by name).

        The batch may be larger or smaller than the net's.
        """
        tested = self._tested(net, blobs)
        return {name: copied(tested.blob(name)) for name in tested.outputs}

    def forward(self, blobs: Mapping[str, Array], wanted: Sequence[str]) -> Mapping[str, Array]:
        """Forward of TEST net 0; the blobs named in `wanted`, copied; raises ConfigError for an unknown one."""
        for name in wanted:
            self.blob_shape(name, 0)
        tested = self._tested(0, blobs)
        return {name: copied(tested.blob(name)) for name in wanted}

    def _tested(self, index: int, blobs: Mapping[str, Array]) -> Net:
        self._give_back()
        net = self._tests[index]
        net.forward(self._inputs[id(net)].take(blobs, any_batch=True))
        net.verify()
        return net

    def blob_shape(self, name: str, test_net: Optional[int] = None) -> tuple[int, ...]:
        """Shape of blob `name` in the TRAIN net, or in TEST net `test_net`; raises ConfigError for an unknown one."""
        known = self._shapes[id(self._which(test_net))]
        if name not in known:
            raise ConfigError(f"the net has no blob {name!r}{suggestion(name, known)}; it has: {', '.join(known)}")
        return known[name]

    def _which(self, test_net: Optional[int]) -> Any:
        return self._train if test_net is None else self._tests[test_net]

    def layers(self, net: Optional[int] = None) -> tuple[LayerInfo, ...]:
        """The layers of TEST net `net`, or of the TRAIN net for None."""
        which = self._which(net)
        return built.describe(which, self._shapes[id(which)])

    def load_weights(self, path: Path) -> Optional[WeightsReport]:
        """Copy by layer name from a .caffemodel[.h5]; raises ConfigError, in Caffe's words, on a mismatch."""
        self._give_back()
        return files.load_weights(self._main, path)

    def save_model(self, path: Path) -> None:
        """Write the parameters as .caffemodel, or .caffemodel.h5 by suffix; raises TrainingFailed without a folder."""
        self._give_back()
        files.save_model(self._main, path)

    def save(self, prefix: str) -> Snapshot:
        """Write <prefix>_iter_<iteration>.{caffemodel,solverstate}[.h5] into the working directory (rank 0 only)."""
        if self._plan.rank:
            raise RuntimeError(f"rank {self._plan.rank} may not write a snapshot: Caffe aborts")
        if self._solver is None:
            raise RuntimeError("an engine without a TRAIN net has no solver to save")
        hdf5 = self._plan.solver.snapshot_format == schema.ENUMS["SolverParameter.SnapshotFormat"]["HDF5"]
        stem, suffix = f"{prefix}_iter_{self.iteration}", ".h5" if hdf5 else ""
        found = Snapshot(Path.cwd() / f"{stem}.caffemodel{suffix}", Path.cwd() / f"{stem}.solverstate{suffix}")
        self.save_model(found.model)
        files.save_state(self._solver, found.state, found.model.name)
        return found

    def restore(self, state: Path) -> None:
        """Load a .solverstate[.h5] and the model it names; raises ConfigError where they do not fit net or solver."""
        if self._solver is None:
            raise RuntimeError("an engine without a TRAIN net has no solver to restore")
        self._give_back()
        files.restore(self._main, self._solver, state)
        self.iteration = self._solver.iteration

    def reseed(self, seed: int) -> None:
        """Start the random stream afresh from `seed` (its low 32 bits); on a GPU dropout draws from torch's own."""
        self._stream.reseed(seed)
        if self._device.type == "cuda":
            torch.cuda.manual_seed(seed % 2**32)

    def time_layers(self, iterations: int, blobs: Optional[Mapping[str, Array]] = None) -> tuple[LayerTime, ...]:
        """Mean seconds of each layer's forward and backward, after one warm-up pass of the whole net.

        Each layer runs by itself: what a training step computes together (BatchNorm and Scale) or in place is not here.
        """
        self._give_back()
        return time_layers(self._main, self._inputs[id(self._main)].take(blobs or {}), iterations)


def _device(gpu: Optional[int]) -> torch.device:
    if gpu is None:
        return torch.device("cpu")
    if not torch.cuda.is_available() or gpu >= torch.cuda.device_count():
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        raise EnvironmentFault(f"GPU {gpu}: PyTorch {version()} finds {found} here: use --solver-mode cpu")
    torch.cuda.set_device(gpu)
    torch.backends.cudnn.allow_tf32 = False  # Caffe's convolutions are in single precision
    return torch.device("cuda", gpu)


def _differences(solver: Any) -> list[str]:
    return ["solver: snapshot_diff is not heeded: models hold no gradients"] if solver.snapshot_diff else []


def _places(every: Sequence[Parameter], learning: Sequence[Parameter]) -> list[int]:
    """For each parameter of the net how many of those before it learn."""
    chosen = {id(p) for p in learning}
    return [0, *np.cumsum([id(p) in chosen for p in every]).tolist()]
