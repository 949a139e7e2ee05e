"""The picture of a run: loss and test curves out of metrics.jsonl. `python -m caffe_on_grid.metrics.report IN OUT`.

matplotlib is loaded only when a picture is drawn, and needs no screen.
"""

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.metrics import jsonl

_RAW, _SMOOTH, _TEST, _LR, _INK = "#9db8d9", "#1f5fa8", "#c4571b", "#6b7280", "#24292f"

MOST = 5000
"""Points of a curve."""


@dataclass
class Curves:
    """What the picture shows: lists of equal length for each x and its y."""

    run_id: str = ""
    loss: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    lr: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))
    tests: dict[str, tuple[list[float], list[float]]] = field(default_factory=dict)
    """Test output → iterations, values (the mean of its elements)."""

    @property
    def accuracies(self) -> dict[str, tuple[list[float], list[float]]]:
        """The test outputs that are shares, 0 to 1: those named for accuracy."""
        return {name: xy for name, xy in self.tests.items() if "accuracy" in name.lower() or "top" in name.lower()}

    @property
    def losses(self) -> dict[str, tuple[list[float], list[float]]]:
        """The test outputs that belong beside the loss."""
        return {name: xy for name, xy in self.tests.items() if "loss" in name.lower()}


def curves(lines: Iterable[dict[str, Any]]) -> Curves:
    """The curves in the lines of a metrics.jsonl; a resumed or repeated iteration counts as written last."""
    found = Curves()
    task = "train"
    for line in lines:
        if line["kind"] == "gang":
            task, found.run_id = line["task"], line["run_id"]
        elif line["kind"] == "stepped" and task == "train":
            _add(found.loss, line["iteration"], jsonl.number(line["loss"]))
            _add(found.lr, line["iteration"], jsonl.number(line["lr"]))
        elif line["kind"] == "tested" and task == "train":
            for name, values in line["outputs"].items():
                mean = sum(map(jsonl.number, values)) / max(1, len(values))
                _add(found.tests.setdefault(_test_name(name, line["net"]), ([], [])), line["iteration"], mean)
    found.loss, found.lr = thinned(found.loss), thinned(found.lr)
    return found


def thinned(curve: tuple[list[float], list[float]]) -> tuple[list[float], list[float]]:
    """At most MOST points, each for as many neighbours: days have a million, which nobody sees or can wait for."""
    step = -(-len(curve[0]) // MOST)
    if step <= 1:
        return curve
    starts = range(0, len(curve[0]), step)
    return [curve[0][at] for at in starts], [_mean(curve[1][at : at + step]) for at in starts]


def _test_name(output: str, net: int) -> str:
    return output if net == 0 else f"{output} (net #{net})"


def _add(curve: tuple[list[float], list[float]], x: float, y: float) -> None:
    curve[0].append(x)
    curve[1].append(y)


def smooth(values: list[float]) -> list[float]:
    """Mean over a window around each value (a 25th of all, 5 at least); NaN and infinities are left out."""
    half = max(5, len(values) // 25) // 2
    return [_mean(values[max(0, i - half) : i + half + 1]) for i in range(len(values))]


def _mean(values: list[float]) -> float:
    finite = [v for v in values if math.isfinite(v)]
    return sum(finite) / len(finite) if finite else math.nan


def title(found: Curves) -> str:
    """The run's id and where its accuracy ended."""
    last = [f"{name} {xy[1][-1]:.2%}" for name, xy in found.accuracies.items() if xy[1]]
    return "   ·   ".join([found.run_id or "run", *last])


def draw(metrics: Path, picture: Path) -> None:
    """Draw the curves in `metrics` into `picture`, whose suffix chooses the format (.png, .svg, .pdf)."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # no word of a home that cannot be written
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with metrics.open(encoding="utf-8") as lines:
        found = curves(jsonl.read(lines))
    rows = 2 if found.accuracies else 1
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(
            rows, 1, sharex=True, figsize=(9, 3.4 * rows + 0.6), squeeze=False, layout="constrained"
        )
        _draw_loss(axes[0][0], found)
        if found.accuracies:
            _draw_accuracy(axes[1][0], found)
        axes[-1][0].set_xlabel("iteration")
        figure.suptitle(title(found), fontsize=14, fontweight="bold", color=_INK)
        figure.savefig(picture, dpi=150)
        pyplot.close(figure)


_STYLE = {
    "font.size": 11,
    "axes.labelcolor": _INK,
    "axes.edgecolor": "#8b949e",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e5e7eb",
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
}


def _draw_loss(axes: Any, found: Curves) -> None:
    x, y = found.loss
    axes.plot(x, y, color=_RAW, linewidth=0.8, label="training loss")
    if len(y) >= 10:
        axes.plot(x, smooth(y), color=_SMOOTH, linewidth=2, label="smoothed")
    for name, (tx, ty) in found.losses.items():
        axes.plot(tx, ty, color=_TEST, linewidth=1.5, marker="o", markersize=3.5, label=f"test {name}")
    positive = [v for v in y if math.isfinite(v) and v > 0]
    if positive and len(positive) == len(y) and max(positive) > 30 * min(positive):
        axes.set_yscale("log")
    axes.set_ylabel("loss")
    handles = axes.get_legend_handles_labels()
    handles = _draw_lr(axes.twinx(), found.lr, handles)
    if handles[0]:
        axes.legend(*handles, loc="upper right", ncols=2)


def _draw_lr(axes: Any, lr: tuple[list[float], list[float]], handles: Any) -> Any:
    """The learning rate on an axis of its own; a constant one is no curve."""
    if len(set(lr[1])) < 2:
        axes.remove()
        return handles
    axes.plot(*lr, color=_LR, linewidth=1, linestyle=(0, (4, 3)), label="learning rate")
    axes.set_ylabel("learning rate", color=_LR)
    axes.tick_params(axis="y", colors=_LR)
    axes.ticklabel_format(axis="y", style="sci", scilimits=(-2, 3))
    axes.set_ylim(0, 1.08 * max(v for v in lr[1] if math.isfinite(v)))
    axes.spines["right"].set_visible(True)
    axes.grid(visible=False)
    more = axes.get_legend_handles_labels()
    return [*handles[0], *more[0]], [*handles[1], *more[1]]


def _draw_accuracy(axes: Any, found: Curves) -> None:
    from matplotlib.ticker import PercentFormatter

    for number, (name, (x, y)) in enumerate(found.accuracies.items()):
        color = _TEST if number == 0 else None
        axes.plot(x, y, color=color, linewidth=2, marker="o", markersize=4, label=f"test {name}")
        axes.annotate(
            f"{y[-1]:.2%}", (x[-1], y[-1]), xytext=(-4, -14), textcoords="offset points", ha="right", color=_INK
        )
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.set_ylabel("accuracy")
    axes.legend(loc="lower right")


def main(argv: Optional[list[str]] = None) -> int:
    """`METRICS PICTURE`; 2 for a wrong call."""
    words = sys.argv[1:] if argv is None else argv
    if len(words) != 2:
        sys.stderr.write("usage: python -m caffe_on_grid.metrics.report METRICS PICTURE\n")
        return 2
    draw(Path(words[0]), Path(words[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
