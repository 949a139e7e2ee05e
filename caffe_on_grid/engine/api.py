"""What an engine is: the thing that owns a net and a solver, and steps them exactly as Caffe does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Blobs = Sequence[npt.NDArray[np.float32]]
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

    def load_weights(self, path: Path) -> None:
        """Copy by layer name from a .caffemodel[.h5], as Caffe does; raises ConfigError on a shape mismatch."""

    def save_model(self, path: Path) -> None:
        """Write the .caffemodel (or .caffemodel.h5 by suffix)."""

    def save(self, prefix: str) -> Snapshot:
        """Write <prefix>_iter_<iteration>.caffemodel and .solverstate into the working directory."""

    def restore(self, state: Path) -> None:
        """Load a .solverstate and the model it names (relative to the working directory)."""

    def reseed(self, seed: int) -> None:
        """Start the engine's random stream (dropout, DummyData) afresh."""

    def time_layers(self, iterations: int) -> Any:
        """Per-layer seconds of forward and backward, as `caffe time` measures them (see worker.timing)."""
