"""Where real Caffe's gradients are wrong because blobs share memory: what this engine says of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Optional

from caffe_on_grid.engine.torch.graph import Node
from caffe_on_grid.engine.torch.layers_base import Layer
from caffe_on_grid.engine.torch.layers_recurrent import Recurrent
from caffe_on_grid.proto import in_place


def fault_of(node: Node) -> Optional[str]:
    """A warning about a layer that is itself wrong in place."""
    spec = node.spec
    if node.backward and spec.type in ("LSTM", "RNN") and spec.recurrent_param.expose_hidden:
        return f"layer '{spec.name}': as in real Caffe, exposed hidden states pass no gradient"
    if not node.backward or not node.tops or node.tops[:1] != node.bottoms[:1]:
        return None
    why = in_place.fault(spec)
    return f"layer '{spec.name}': real Caffe differs here because {spec.type} in place {why}" if why else None


def unlike(nodes: Sequence[Node]) -> Iterator[str]:
    """Warnings about layers in place that Caffe computes from memory half overwritten: nothing reproduces that."""
    for node in nodes:
        spec = node.spec
        within = spec.type == "LRN" and spec.lrn_param.norm_region != 0 and node.backward
        if node.tops and node.tops[:1] == node.bottoms[:1] and (spec.type in in_place.OVERWRITES or within):
            yield (
                f"layer '{spec.name}': real Caffe's numbers are others, and wrong, because {spec.type} in place "
                "overwrites what it reads: give its top another name"
            )


def stale(layers: Sequence[Layer]) -> Iterator[str]:
    """Warnings about recurrent layers that share weights with an earlier one."""
    for layer in layers:
        if isinstance(layer, Recurrent) and layer.stale:
            yield (
                f"layer '{layer.name}': real Caffe differs here because in TRAIN only its first time step uses the "
                "recurrent weights that it shares"
            )


def faults_between(nodes: Sequence[Node]) -> list[str]:
    """Warnings about in-place layers that overwrite what the layer before reads in its backward pass."""
    makers: dict[int, Node] = {}
    found = []
    for node in nodes:
        within = bool(node.tops) and node.tops[:1] == node.bottoms[:1]
        maker = makers.get(node.tops[0]) if within else None
        if maker is not None and maker.backward and maker.spec.type in in_place.READS_TOP:
            found.append(
                f"layer '{maker.spec.name}': real Caffe differs here because its backward pass reads its top, which "
                f"'{node.spec.name}' overwrites in place"
            )
        makers.update({top: node for top in node.tops if not (within and maker is not None)})
    return found
