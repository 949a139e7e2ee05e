"""Labels outside 0..classes-1: real Caffe reads past its arrays there; here the job ends with the reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import numpy as np

from caffe_on_grid.engine.api import Array, Engine
from caffe_on_grid.errors import DataError
from caffe_on_grid.proto.graph import LabelUse


class LabelCheck:
    """Checks each batch's labels against the classes of the layers that use them."""

    def __init__(self, uses: Sequence[LabelUse], engine: Engine, test_net: Optional[int] = None) -> None:
        """`uses` from proto.graph.label_uses of the net that `engine` built."""
        self.uses = [(use, engine.blob_shape(use.score_blob, test_net)[use.axis]) for use in uses]

    def check(self, batch: Mapping[str, Array]) -> None:
        """Raise DataError naming layer, value and number of classes."""
        for use, classes in self.uses:
            labels = batch.get(use.label_blob)
            if labels is not None:
                refuse_outside(use, labels, classes)


def refuse_outside(use: LabelUse, labels: Array, classes: int) -> None:
    """The check itself; labels are truncated to integers, as Caffe does."""
    whole = np.trunc(labels)
    outside = (whole < 0) | (whole >= classes)
    if use.ignore_label is not None:
        outside &= whole != use.ignore_label
    if outside.any():
        value = int(whole[outside].flat[0])
        raise DataError(
            f"label {value} is out of range for layer {use.layer!r} ({use.type}), whose scores {use.score_blob!r} have "
            f"{classes} classes (0..{classes - 1}); correct the labels, num_output, or set ignore_label"
        )
