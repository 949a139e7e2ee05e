"""Claim: a net of 2,000 layers is parsed, upgraded and filtered within a second.

Peer: protobuf's own text parser on the same text and schema, which gives no positions for the messages of errors.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import measure

sys.path.insert(0, str(measure.ROOT))

from google.protobuf import text_format

from caffe_on_grid.proto import graph, schema, text, upgrade

LAYER = """layer {{
  name: "conv{at}"
  type: "Convolution"
  bottom: "{bottom}"
  top: "conv{at}"
  param {{ lr_mult: 1 decay_mult: 1 }}
  param {{ lr_mult: 2 decay_mult: 0 }}
  convolution_param {{
    num_output: 64
    pad: 1
    kernel_size: 3
    weight_filler {{ type: "xavier" }}
    bias_filler {{ type: "constant" value: 0.2 }}
  }}
}}
layer {{ name: "relu{at}" type: "ReLU" bottom: "conv{at}" top: "conv{at}" }}
"""


def net(layers: int) -> str:
    """A chain of convolutions with a ReLU after each."""
    shape = "shape { dim: 1 dim: 64 dim: 9 dim: 9 }"
    head = f'name: "long" layer {{ name: "data" type: "Input" top: "data" input_param {{ {shape} }} }}\n'
    bottoms = ["data", *(f"conv{at}" for at in range(layers // 2))]
    return head + "".join(LAYER.format(at=at, bottom=bottoms[at]) for at in range(layers // 2))


def seconds(run: Callable[[], object]) -> float:
    """Of one run, on the processor: other programs of the machine do not count."""
    start = time.process_time()
    run()
    return time.process_time() - start


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    written = net(given.layers)

    def ours() -> None:
        parsed = upgrade.upgrade_net(text.parse(schema.NetParameter, written, "long.prototxt"))
        assert len(graph.filter_net(parsed, schema.NetState(phase=schema.TRAIN)).layer) == given.layers + 1

    def protobuf() -> None:
        text_format.Parse(written, schema.NetParameter())

    times = [(seconds(ours), seconds(protobuf)) for _ in range(given.repeats)]
    own, peer = (measure.median([each[at] for each in times]) for at in (0, 1))
    measure.show(
        f"a prototxt of {given.layers} layers, parsed with positions, upgraded and filtered",
        "seconds <= 1",
        seconds=own,
        protobuf_seconds=peer,
        bytes=len(written),
        repeats=given.repeats,
    )


if __name__ == "__main__":
    main()
