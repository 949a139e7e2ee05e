"""What a source and a feed are: records in a fixed order, and batches made of them ahead of time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional, Protocol

import numpy as np

if TYPE_CHECKING:  # numpy.typing came with 1.20; the Caffe runtime has 1.19
    import numpy.typing as npt

    Array = npt.NDArray[Any]
    Floats = npt.NDArray[np.float32]
    Indices = npt.NDArray[np.int64]
else:
    Array = Floats = Indices = np.ndarray


@dataclass(frozen=True)
class Record:
    """One decoded record: `pixels` [C, H, W] uint8 or float32 (BGR where three channels), an integer label, its key."""

    key: str
    pixels: Array
    label: int


class Source(Protocol):
    """Records by index, in the source's own order."""

    def __len__(self) -> int:
        """Number of records."""

    def read(self, index: int) -> Record:
        """Record `index`; raises DataError naming its key where it cannot be decoded."""

    def close(self) -> None:
        """Let go of files."""


@dataclass(frozen=True)
class TransformPlan:
    """Caffe's transform_param. `mean` is float32 [C, H, W] (mean_file) or [C, 1, 1]/[1, 1, 1] (mean_value)."""

    scale: float = 1.0
    mirror: bool = False
    crop: int = 0
    mean: Optional[Floats] = None
    force_color: bool = False
    force_gray: bool = False


@dataclass(frozen=True)
class FeedPlan:
    """How one rank's feed of one net's data layer is made.

    TRAIN: the n-th batch asked for is this rank's piece of global batch first + n.
    TEST: pass p consists of global batches p·passes .. (p+1)·passes − 1, in the source's order; this rank gets those
    whose place in the pass is ≡ rank modulo world, whole; `first` is the first pass.
    """

    source: str
    """Local path of the LMDB."""
    data_top: str
    label_top: Optional[str]
    batch: int
    phase: str
    """"TRAIN" or "TEST"."""
    rank: int
    world: int
    seed: int
    shuffle: bool = True
    first: int = 0
    passes: int = 0
    """TEST: batches in one pass (test_iter)."""
    transform: TransformPlan = field(default_factory=TransformPlan)
    skip_bad: bool = False
    feeders: int = 1
    slots: int = 4


class Feed(Protocol):
    """Batches from feeder processes through shared memory; never needs a thread of the solver's process."""

    shapes: Mapping[str, tuple[int, ...]]
    """Top name → shape of each batch."""
    records: int
    skipped: int
    """Undecodable records replaced so far (only with skip_bad)."""
    seconds: float
    """Time spent waiting in `batch`."""

    def batch(self) -> Mapping[str, Array]:
        """The next batch (float32), valid until the next call; raises DataError, or TrainingFailed if a feeder died."""

    def close(self) -> None:
        """End the feeders and free the memory."""
