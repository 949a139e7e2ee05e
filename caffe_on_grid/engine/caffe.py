"""The real Caffe, through pycaffe: the only module that imports it.

Caffe's settings (mode, device, solver count and rank, random stream) belong to the thread, so an engine is built and
stepped in one thread. A failed CHECK inside Caffe is SIGABRT, not an exception; what can be checked beforehand is.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Optional

os.environ.setdefault("GLOG_minloglevel", "2")  # read when Caffe is loaded; fatal lines still go to stderr
import caffe
from google.protobuf import text_format

from caffe_on_grid.engine import native, weights
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
from caffe_on_grid.errors import ConfigError, TrainingFailed
from caffe_on_grid.proto import schedule, schema, text

SOLVER_FILE = "engine_solver.prototxt"
"""Written into the plan's scratch folder: what Caffe was really given."""


def version() -> str:
    """Caffe's version, e.g. "1.0.0"."""
    return str(caffe.__version__)


def create(plan: EnginePlan) -> CaffeEngine:
    """Build the nets of `plan`; raises ConfigError for types and fields that this Caffe lacks."""
    return CaffeEngine(plan)


class CaffeEngine:
    """A `caffe.Solver` with its nets, or TEST nets alone where the plan has no TRAIN net (see engine.api.Engine)."""

    def __init__(self, plan: EnginePlan) -> None:
        native.check_plan(plan, caffe.layer_type_list())
        self.name = f"caffe {version()}"
        self.warnings: tuple[str, ...] = ()
        self._plan = plan
        self._now: Optional[_Step] = None
        _settle(plan)
        self._solver, self._train, self._tests = _build(plan)
        main = self._main
        self._all = native.params(main, plan.train_net if plan.train_net is not None else plan.test_nets[0])
        self._learning = [p for p in self._all if p.learns]
        self._ready = native.ready_ranges(self._learning)
        self._views: dict[str, Blobs] = {}
        if self._solver is not None:
            self._listen()

    @property
    def _main(self) -> Any:
        """The net that owns the parameters."""
        return self._train if self._train is not None else self._tests[0]

    def _listen(self) -> None:
        """Have Caffe call back into the step under way; an exception there leaves `Solver::Step` as itself."""
        self._losses = native.loss_terms(self._train)
        self._last = len(self._train.layers) - 1
        self._train.before_forward(self._before_forward)
        self._train.after_backward(self._after_backward)
        self._solver.add_callback(self._on_start, self._on_gradients)

    @property
    def iteration(self) -> int:
        """Steps done."""
        return int(self._solver.iter) if self._solver is not None else 0

    @property
    def params(self) -> Blobs:
        """Learnable blobs, owners once, in net order."""
        return self._views_of("params", self._learning, "data")

    @property
    def grads(self) -> Blobs:
        """Gradients of `params`."""
        return self._views_of("grads", self._learning, "diff")

    @property
    def statistics(self) -> Blobs:
        """BatchNorm's sums, in net order."""
        return self._views_of("statistics", [p for p in self._all if p.statistic], "data")

    def all_params(self) -> Blobs:
        """Every parameter blob once, in net order."""
        return self._views_of("all", self._all, "data")

    def _views_of(self, key: str, blobs: list[native.Param], side: str) -> Blobs:
        """Views, kept on a CPU; on a GPU each access is what copies the values over and marks them changed."""
        if self._plan.gpu is not None:
            return [getattr(p.blob, side) for p in blobs]
        if key not in self._views:
            self._views[key] = [getattr(p.blob, side) for p in blobs]
        return self._views[key]

    def step(self, batches: Iterator[Mapping[str, Array]], hooks: Hooks) -> StepResult:
        """One iteration: takes iter_size batches, each valid until the next is asked for."""
        if self._solver is None:
            raise RuntimeError("an engine without a TRAIN net cannot step")
        lr = schedule.learning_rate(self._plan.solver, self.iteration)
        now = self._now = _Step(batches, hooks, self._plan.solver.iter_size)
        try:
            self._solver.step(1)
        finally:
            self._now = None
        return StepResult(now.loss / now.passes, native.copies(self._train, self._train.outputs), lr)

    def _on_start(self) -> None:
        if self._now is not None:
            self._now.hooks.on_start()

    def _on_gradients(self) -> None:
        if self._now is not None:
            self._now.hooks.on_gradients()

    def _before_forward(self, layer: int) -> None:
        if self._now is not None and layer == 0:
            native.fill(self._train, next(self._now.batches))

    def _after_backward(self, layer: int) -> None:
        step = self._now
        if step is None:
            return
        if layer == self._last:
            step.loss += native.loss(self._losses)
            step.passed += 1
        if step.passed == step.passes and layer in self._ready:
            step.hooks.on_ready(*self._ready[layer])

    def evaluate(self, net: int, blobs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Forward of TEST net `net` with the present parameters; its outputs, copied, in Caffe's order (by name)."""
        tested = self._tested(net, blobs)
        return native.copies(tested, tested.outputs)

    def forward(self, blobs: Mapping[str, Array], wanted: Sequence[str]) -> Mapping[str, Array]:
        """Forward of TEST net 0; the blobs named in `wanted`, copied; raises ConfigError for an unknown one."""
        for name in wanted:
            native.blob_of(self._tests[0], name)
        return native.copies(self._tested(0, blobs), wanted)

    def _tested(self, index: int, blobs: Mapping[str, Array]) -> Any:
        net = self._tests[index]
        if self._main is not net:
            net.share_with(self._main)  # before every pass, as Caffe's TestAll does
        native.fill(net, blobs)
        net._forward(0, len(net.layers) - 1)
        return net

    def layers(self, net: Optional[int] = None) -> tuple[LayerInfo, ...]:
        """The layers of TEST net `net`, or of the TRAIN net for None."""
        return native.describe(self._train if net is None else self._tests[net])

    def blob_shape(self, name: str, test_net: Optional[int] = None) -> tuple[int, ...]:
        """Shape of blob `name` in the TRAIN net, or in TEST net `test_net`; raises ConfigError for an unknown one."""
        return tuple(native.blob_of(self._train if test_net is None else self._tests[test_net], name).shape)

    def load_weights(self, path: Path) -> Optional[WeightsReport]:
        """Copy by layer name from a .caffemodel[.h5]; raises ConfigError, in Caffe's words, on a mismatch."""
        if path.suffix == ".h5":
            _demand(path, "weights")
            self._main.load_hdf5(str(path))
            return None
        return weights.copy(native.targets(self._main), weights.read(path), f"weights {path}", native.assign)

    def save_model(self, path: Path) -> None:
        """Write the parameters as .caffemodel, or .caffemodel.h5 by suffix; raises TrainingFailed without a folder."""
        if not os.access(path.parent, os.W_OK):
            raise TrainingFailed(f"model {path}: its folder is missing or may not be written to")
        write = self._main.save_hdf5 if path.suffix == ".h5" else self._main.save
        write(str(path))

    def save(self, prefix: str) -> Snapshot:
        """Write <prefix>_iter_<iteration>.{caffemodel,solverstate}[.h5] into the working directory (rank 0 only)."""
        if self._plan.rank:
            raise RuntimeError(f"rank {self._plan.rank} may not write a snapshot: Caffe aborts")
        own = native.snapshot_prefix(self._plan.solver)
        suffix = ".h5" if self._hdf5 else ""
        if prefix != own and suffix:
            raise ConfigError(f"snapshot prefix {prefix!r}: an HDF5 snapshot is named by the solver, {own!r}")
        self._solver.snapshot()
        names = (f"_iter_{self.iteration}.caffemodel{suffix}", f"_iter_{self.iteration}.solverstate{suffix}")
        model, state = (_renamed(own + name, prefix + name) for name in names)
        if prefix != own:
            weights.rename_model(state, model.name)
        return Snapshot(model, state)

    @property
    def _hdf5(self) -> bool:
        return bool(self._plan.solver.snapshot_format == schema.ENUMS["SolverParameter.SnapshotFormat"]["HDF5"])

    def restore(self, state: Path) -> None:
        """Load a .solverstate[.h5] and the model it names; raises ConfigError where they do not fit net or solver."""
        _demand(state, "snapshot")
        if state.suffix != ".h5":
            self._check_state(state)
        self._solver.restore(str(state))

    def _check_state(self, state: Path) -> None:
        shapes = [tuple(p.blob.shape) for p in self._all]
        stored = weights.check_state(state, shapes, native.SOLVER_TYPES[self._plan.solver.type])
        if stored.learned_net:
            model = Path(stored.learned_net)
            _demand(model, f"snapshot {state}: its model")
            weights.check_model(native.targets(self._train), weights.read(model), f"snapshot {state}: {model}")

    def reseed(self, seed: int) -> None:
        """Start Caffe's random stream of this thread afresh from `seed` (its low 32 bits)."""
        caffe.set_random_seed(seed % 2**32)

    def time_layers(self, iterations: int, blobs: Optional[Mapping[str, Array]] = None) -> tuple[LayerTime, ...]:
        """Mean seconds of each layer's forward and backward, after one warm-up pass of the whole net."""
        net = self._main
        native.fill(net, blobs or {})
        return _time_layers(net, iterations)


class _Step:
    """What one step has seen so far."""

    def __init__(self, batches: Iterator[Mapping[str, Array]], hooks: Hooks, passes: int) -> None:
        self.batches, self.hooks, self.passes = batches, hooks, passes
        self.passed = 0
        self.loss = 0.0


def _settle(plan: EnginePlan) -> None:
    """Mode, device and place in the world, for this thread and what is built in it."""
    if plan.gpu is None:
        caffe.set_mode_cpu()
    else:
        caffe.set_device(plan.gpu)
        caffe.set_mode_gpu()
    caffe.set_solver_count(plan.world)
    caffe.set_solver_rank(plan.rank)
    caffe.set_multiprocess(plan.world > 1)


def _build(plan: EnginePlan) -> tuple[Any, Any, list[Any]]:
    """Solver, TRAIN net and TEST nets. Wrappers are kept: each access to `solver.net` makes a new one."""
    if plan.train_net is None:
        if plan.seed >= 0:
            caffe.set_random_seed((plan.seed + plan.rank) % 2**32)
        return None, None, [_test_net(plan, index) for index in range(len(plan.test_nets))]
    path = plan.scratch / SOLVER_FILE
    _write(path, native.solver_message(plan), caffe.proto.caffe_pb2.SolverParameter())
    solver = caffe.get_solver(str(path))
    return solver, solver.net, list(solver.test_nets)


def _test_net(plan: EnginePlan, index: int) -> Any:
    path = plan.scratch / f"engine_test_net_{index}.prototxt"
    _write(path, native.bare_net(plan.test_nets[index]), caffe.proto.caffe_pb2.NetParameter())
    return caffe.Net(str(path), caffe.TEST)


def _write(path: Path, message: Any, own: Any) -> None:
    """Write `message` for Caffe to read; raises ConfigError where Caffe's `own` message does not take its text."""
    rendered = text.render(message)
    try:
        text_format.Parse(rendered, own)
    except text_format.ParseError as error:
        raise ConfigError(f"{path.name}: Caffe {version()} does not take it: {error}") from error
    path.write_text(rendered)


def _renamed(name: str, wanted: str) -> Path:
    path = Path.cwd() / name
    return path if name == wanted else path.replace(path.with_name(wanted))


def _demand(path: Path, what: str) -> None:
    if not path.is_file():
        raise ConfigError(f"{what} {path}: no such file")


def _time_layers(net: Any, iterations: int) -> tuple[LayerTime, ...]:
    last = len(net.layers) - 1
    forward, backward = [0.0] * (last + 1), [0.0] * (last + 1)
    net._forward(0, last)
    net._backward(last, 0)
    for _ in range(iterations):
        for at in range(last + 1):
            forward[at] += _seconds(net._forward, at)
        for at in range(last, -1, -1):
            backward[at] += _seconds(net._backward, at)
    return tuple(
        LayerTime(net._layer_names[at], net.layers[at].type, forward[at] / iterations, backward[at] / iterations)
        for at in range(last + 1)
    )


def _seconds(run: Any, at: int) -> float:
    start = time.perf_counter()
    run(at, at)
    return time.perf_counter() - start
