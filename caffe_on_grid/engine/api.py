"""What an engine is: the thing that owns a net and a solver, and steps them exactly as Caffe does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Optional, Protocol

import numpy as np

if TYPE_CHECKING:  # numpy.typing came with 1.20; the Caffe runtime has 1.19
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Floats = npt.NDArray[np.float32]
else:
    Array = Floats = np.ndarray

Blobs = Sequence[Floats]
"""Parameters or gradients: one float32 view per learnable blob (owners of shared blobs once, lr_mult ≠ 0 only),
in net order; changed in place."""


@dataclass(frozen=True)
class EnginePlan:
    """All that an engine needs; its data layers are already inputs.

    `solver` and the nets are messages of `caffe_on_grid.proto.schema`, upgraded to the current format.
    """

    solver: Any
    """SolverParameter without nets; its display, test and snapshot settings are the worker's business."""
    train_net: Optional[Any]
    """NetParameter filtered for TRAIN, data layers replaced by Input layers; None for a job that only tests."""
    test_nets: tuple[Any, ...]
    """The same for each TEST net."""
    rank: int = 0
    world: int = 1
    gpu: Optional[int] = None
    """Device index; None: CPU."""
    seed: int = -1
    """random_seed of the job (already chosen); rank r's stream is seed + r, as in Caffe."""
    scratch: Path = field(default_factory=Path)
    """Own folder, also the process's working directory."""
    strict: bool = False
    """Reproduce the gradients of Caffe's own faults (the caffe engine has them anyway)."""


@dataclass(frozen=True)
class StepResult:
    """What one step gave. `loss` is the mean over iter_size passes of Σ loss_weight × top (unsmoothed)."""

    loss: float
    outputs: Mapping[str, Array]
    lr: float


@dataclass(frozen=True)
class Snapshot:
    """The two local files that a snapshot is."""

    model: Path
    state: Path


@dataclass(frozen=True)
class WeightsReport:
    """What copying weights by layer name did: layer names, in the order of the file or of the net."""

    loaded: tuple[str, ...]
    ignored: tuple[str, ...]
    """In the file, not in the net."""
    fresh: tuple[str, ...]
    """In the net with parameters, not in the file: they keep their fillers' values."""


@dataclass(frozen=True)
class LayerInfo:
    """One layer of a built net, splits included. Shapes are per top and per parameter blob."""

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[tuple[int, ...], ...]
    param_shapes: tuple[tuple[int, ...], ...]
    loss_weights: tuple[float, ...]
    """One for each top; 0 where a top is no loss."""


@dataclass(frozen=True)
class LayerTime:
    """Mean seconds of one layer's passes."""

    name: str
    type: str
    forward_s: float
    backward_s: float


class Hooks(Protocol):
    """What the engine calls in the midst of a step, in the thread that steps."""

    def on_start(self) -> None:
        """Gradients are cleared; parameters may still be changed."""

    def on_ready(self, first: int, last: int) -> None:
        """The gradients of blobs first..last (inclusive) are final for this step."""

    def on_gradients(self) -> None:
        """All gradients are final; on return they are what the update uses."""


class Engine(Protocol):
    """A net and its solver."""

    name: str
    """e.g. "caffe 1.0.0"."""
    warnings: Sequence[str]
    """One line each on what it does otherwise than the user may think."""
    iteration: int
    """Steps done."""
    params: Blobs
    grads: Blobs
    statistics: Blobs
    """Blobs that change without gradients and differ between ranks (BatchNorm's sums), in net order."""

    def step(self, batches: Iterator[Mapping[str, Array]], hooks: Hooks) -> StepResult:
        """One iteration: takes iter_size batches, each valid until the next is asked for."""

    def evaluate(self, net: int, blobs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Forward of TEST net `net` with the present parameters; its output blobs, copied."""

    def forward(self, blobs: Mapping[str, Array], wanted: Sequence[str]) -> Mapping[str, Array]:
        """Forward of TEST net 0; the blobs named in `wanted`, copied."""

    def blob_shape(self, name: str, test_net: Optional[int] = None) -> tuple[int, ...]:
        """Shape of a blob of the TRAIN net (or of a TEST net)."""

    def all_params(self) -> Blobs:
        """Every parameter blob of the net once, statistics and lr_mult 0 included (to broadcast, to hash)."""

    def load_weights(self, path: Path) -> Optional[WeightsReport]:
        """Copy by layer name from a .caffemodel[.h5], as Caffe does; raises ConfigError on a shape mismatch.

        Returns what was copied, or None for a .h5 file, whose layers the engine does not list.
        """

    def save_model(self, path: Path) -> None:
        """Write the .caffemodel (or .caffemodel.h5 by suffix)."""

    def save(self, prefix: str) -> Snapshot:
        """Write <prefix>_iter_<iteration>.caffemodel and .solverstate into the working directory, on rank 0 only.

        `prefix` is a bare name. In HDF5 it must be the last part of the solver's snapshot_prefix ("snapshot" if unset).
        """

    def restore(self, state: Path) -> None:
        """Load a .solverstate and the model it names (relative to the working directory)."""

    def reseed(self, seed: int) -> None:
        """Start the engine's random stream (dropout, DummyData) afresh."""

    def time_layers(self, iterations: int, blobs: Optional[Mapping[str, Array]] = None) -> tuple[LayerTime, ...]:
        """Mean seconds of each layer's forward and backward in the TRAIN net (else TEST net 0), after one warm-up pass.

        `blobs` are copied into the inputs once, before the first pass.
        """

    def layers(self, net: Optional[int] = None) -> tuple[LayerInfo, ...]:
        """The layers of TEST net `net`, or of the TRAIN net for None."""
