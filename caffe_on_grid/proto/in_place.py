"""What Caffe loses where a layer's top takes its bottom's memory: one table for `lint_shapes` and the engines."""

from __future__ import annotations

from typing import Any, Optional

READS_TOP = frozenset({"Sigmoid", "TanH", "ELU", "Exp", "Swish", "Softmax", "LRN", "MVN"})
"""Types whose backward pass reads their top again, which a layer in place after them has overwritten."""
OVERWRITES = frozenset({"Convolution", "Deconvolution", "Eltwise", "Im2col", "InnerProduct", "Pooling", "SPP"})
"""Types that in place write over what they still read."""
_LOST = {
    "Clip": "lets the gradient pass everywhere",
    "Power": "loses the incoming gradient",
    "BNLL": "uses its output for its input",
    "Log": "loses the incoming gradient",
    "MVN": "loses the incoming gradient",
    "LRN": "uses its output for its input",
}


def fault(layer: Any) -> Optional[str]:
    """What is wrong with Caffe's gradient of `layer` (LayerParameter) in place; None where it is right."""
    if layer.type == "MVN" and not layer.mvn_param.normalize_variance:
        return None
    if layer.type == "ReLU" and layer.relu_param.negative_slope < 0:
        return "with a negative slope below 0 uses its output for its input"
    return _LOST.get(layer.type)
