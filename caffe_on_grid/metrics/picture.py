"""A net as a picture (SVG): a box for each layer, those in place in the box of the layer before, shapes and work in it.

igraph lays the boxes out (Sugiyama's method: rows along the data's way, few crossings).
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.sax.saxutils import escape

from caffe_on_grid.errors import EnvironmentFault

Point = tuple[float, float]

LINE = 16
"""Height of a line of text, in pixels."""
GLYPH = 7.4
"""Width of a character, about."""
FAR = 3
"""Rows that a line from a layer that brings data may cross."""
PAD, ROW_GAP, COLUMN_GAP, MARGIN, HEAD = 8, 34, 26, 24, 56

_KINDS: dict[str, tuple[str, ...]] = {
    "#dbe9ff": ("Convolution", "Deconvolution", "ConvolutionDepthwise", "DepthwiseConvolution", "Im2col"),
    "#e3dcff": ("InnerProduct", "Embed", "LSTM", "RNN", "LSTMUnit"),
    "#d8f3dc": ("Pooling", "SPP", "ROIPooling", "Upsample", "Interp"),
    "#fff1c9": ("BatchNorm", "Scale", "Bias", "LRN", "MVN", "Normalize"),
    "#eeeeee": ("Concat", "Eltwise", "Slice", "Split", "Reshape", "Flatten", "Permute", "Axpy", "Crop", "Tile"),
    "#d9f2f4": ("Input", "Data", "DummyData", "Parameter", "HDF5Data", "ImageData", "MemoryData", "WindowData"),
    "#ffdada": ("Softmax", "Accuracy", "ArgMax"),
}
_COLOURS = {kind: colour for colour, kinds in _KINDS.items() for kind in kinds}
_LOSS, _OTHER = "#ffdada", "#f7f3ee"


@dataclass
class Box:
    """One layer, and those that work in place on its tops."""

    layer: Mapping[str, Any]
    in_place: list[Mapping[str, Any]] = field(default_factory=list)
    far: list[str] = field(default_factory=list)
    """What comes from a layer far above that brings data, in words instead of a line across the picture."""

    @property
    def lines(self) -> list[str]:
        """What is written in it, the name first."""
        weights = [_sizes(shape) for shape in self.layer["param_shapes"][:1]]
        said = [self.layer["name"], " ".join([self.layer["type"], *weights])]
        said += [f"+ {', '.join(layer['type'] for layer in self.in_place)}"] if self.in_place else []
        said += list(dict.fromkeys(_sizes(shape) or "scalar" for shape in self.layer["top_shapes"]))
        said += [f"with {', '.join(self.far)}"] if self.far else []
        work = [f"{self.parameters:,} parameters"] if self.parameters else []
        work += [_flop(self.flops)] if self.flops else []
        return [*said, *([" · ".join(work)] if work else [])]

    @property
    def parameters(self) -> int:
        """Of all its layers."""
        return sum(int(layer["parameters"]) for layer in (self.layer, *self.in_place))

    @property
    def flops(self) -> int:
        """Of all its layers."""
        return sum(int(layer["flops"]) for layer in (self.layer, *self.in_place))

    @property
    def size(self) -> Point:
        """Width and height in pixels."""
        return GLYPH * max(map(len, self.lines)) + 3 * PAD, LINE * len(self.lines) + 2 * PAD

    @property
    def colour(self) -> str:
        """By the kind of layer."""
        kind = str(self.layer["type"])
        return _LOSS if kind.endswith("Loss") else _COLOURS.get(kind, _OTHER)


def _sizes(shape: Sequence[int]) -> str:
    return "×".join(map(str, shape))


def _flop(count: int) -> str:
    return f"{count / 1e9:,.2f} GFLOP" if count >= 1e9 else f"{count / 1e6:,.2f} MFLOP"


def boxes(layers: Sequence[Mapping[str, Any]]) -> tuple[list[Box], list[tuple[int, int]]]:
    """The boxes, and from which to which data goes (by index, without repeats)."""
    found: list[Box] = []
    rows: list[int] = []
    makers: dict[str, int] = {}
    ways: dict[tuple[int, int], None] = {}
    for layer in layers:
        sources = {name: makers[name] for name in layer["bottoms"] if name in makers}
        if layer["tops"] and list(layer["tops"]) == list(layer["bottoms"]) and len(set(sources.values())) == 1:
            found[sources[layer["tops"][0]]].in_place.append(layer)
            continue
        row = max((rows[at] + 1 for at in sources.values()), default=0)
        far = [name for name, at in sources.items() if not found[at].layer["bottoms"] and row - rows[at] > FAR]
        ways.update({(at, len(found)): None for name, at in sources.items() if name not in far})
        makers.update(dict.fromkeys(layer["tops"], len(found)))
        rows.append(row)
        found.append(Box(layer, far=[f"{name} of {found[sources[name]].layer['name']}" for name in far]))
    return found, list(ways)


def draw(net: Mapping[str, Any]) -> str:
    """The picture of a net as `inspect --json` tells it; raises EnvironmentFault where igraph is missing."""
    found, ways = boxes(net["layers"])
    places, bends = _laid(found, ways)
    edges = [x + box.size[0] / 2 for (x, _), box in zip(places, found)] + [x for way in bends.values() for x, _ in way]
    width = max(edges, default=0) + MARGIN
    height = max([y + box.size[1] / 2 for (_, y), box in zip(places, found)], default=0) + MARGIN
    said = [
        *_head(net),
        *(_way(found, places, way, bends[way]) for way in ways),
        *(line for box, place in zip(found, places) for line in _box(box, place)),
    ]
    return _PAGE.format(width=max(width, 420), height=height, body="\n".join(said))


def _laid(found: Sequence[Box], ways: Sequence[tuple[int, int]]) -> tuple[list[Point], dict[Any, list[Point]]]:
    """The boxes' centres, and for each way the upper and lower ends of its straight pieces beside boxes."""
    try:
        igraph = importlib.import_module("igraph")
    except ImportError as error:
        raise EnvironmentFault(
            f"a picture needs the package igraph, which this Python lacks ({error}): pip install 'caffe-on-grid[svg]'"
        ) from None
    rows = _rows(len(found), ways)
    chains = _chains(rows, ways)
    links = [link for chain in chains.values() for link in zip(chain, chain[1:])]
    graph = igraph.Graph(n=len(rows), edges=links, directed=True)
    layout = graph.layout_sugiyama(layers=rows, hgap=1, vgap=1, maxiter=500)
    heights = _heights(found, rows)
    points = _scaled(found, rows, heights, _apart(rows, [x for x, _ in layout]))
    return points[: len(found)], {
        way: [(points[at][0], points[at][1] + side * heights[rows[at]] / 2) for at in chain[1:-1] for side in (-1, 1)]
        for way, chain in chains.items()
    }


def _apart(rows: Sequence[int], columns: Sequence[float]) -> list[float]:
    """The columns, a whole one at least between neighbours in a row, which igraph does not see to."""
    found = list(columns)
    last: dict[int, float] = {}
    for at in sorted(range(len(rows)), key=lambda at: columns[at]):
        found[at] = max(columns[at], last.get(rows[at], columns[at] - 1) + 1)
        last[rows[at]] = found[at]
    return found


def _heights(found: Sequence[Box], rows: Sequence[int]) -> dict[int, float]:
    """Of each row: its highest box's."""
    heights: dict[int, float] = {}
    for row, box in zip(rows, found):
        heights[row] = max(heights.get(row, 0), box.size[1])
    return heights


def _rows(count: int, ways: Sequence[tuple[int, int]]) -> list[int]:
    """The row of each box: one below the lowest that data comes from."""
    rows = [0] * count
    for source, target in sorted(ways, key=lambda way: way[1]):
        rows[target] = max(rows[target], rows[source] + 1)
    return rows


def _chains(rows: list[int], ways: Sequence[tuple[int, int]]) -> dict[tuple[int, int], list[int]]:
    """Each way as box, places that it passes, box; `rows` grows by a place for each row between."""
    chains = {}
    for source, target in ways:
        between = range(rows[source] + 1, rows[target])
        chains[source, target] = [source, *range(len(rows), len(rows) + len(between)), target]
        rows.extend(between)
    return chains


def _scaled(
    found: Sequence[Box], rows: Sequence[int], heights: Mapping[int, float], columns: Sequence[float]
) -> list[Point]:
    """Middles in pixels; columns are as wide as the widest of all boxes."""
    middles, at = {}, float(HEAD + MARGIN)
    for row in sorted(heights):
        middles[row] = at + heights[row] / 2
        at += heights[row] + ROW_GAP
    width = max((box.size[0] for box in found), default=0) + COLUMN_GAP
    left = min(columns, default=0)
    return [(MARGIN + width / 2 + (x - left) * width, middles[row]) for x, row in zip(columns, rows)]


def _head(net: Mapping[str, Any]) -> Iterator[str]:
    totals = f"{net['parameters']:,} parameters, {_flop(net['flops'])} forward, phase {net['phase']}"
    yield f'<text x="{MARGIN}" y="30" class="title">{escape(net["name"] or "net")}</text>'
    yield f'<text x="{MARGIN}" y="50">{escape(totals)}</text>'


def _way(found: Sequence[Box], places: Sequence[Point], way: tuple[int, int], bends: Sequence[Point]) -> str:
    """A curve from the lower edge of one box to the upper edge of another, straight down beside boxes."""
    source, target = way
    start = (places[source][0], places[source][1] + found[source].size[1] / 2)
    end = (places[target][0], places[target][1] - found[target].size[1] / 2 - 3)
    path, before = f"M{start[0]:.1f},{start[1]:.1f}", start
    for x, y in (*bends, end):
        half = (before[1] + y) / 2
        path += f" C{before[0]:.1f},{half:.1f} {x:.1f},{half:.1f} {x:.1f},{y:.1f}"
        before = (x, y)
    return f'<path d="{path}" class="way" marker-end="url(#tip)"/>'


def _box(box: Box, place: Point) -> Iterator[str]:
    (width, height), (x, y) = box.size, place
    layers = [box.layer, *box.in_place]
    full = "\n".join(
        f"{each['name']}: {each['type']}, {', '.join(each['bottoms'])} → {', '.join(each['tops'])}" for each in layers
    )
    yield f"<g><title>{escape(full)}</title>"
    corner = f'x="{x - width / 2:.1f}" y="{y - height / 2:.1f}" width="{width:.1f}" height="{height:.1f}"'
    yield f'<rect {corner} rx="6" fill="{box.colour}" stroke="#667"/>'
    for at, line in enumerate(box.lines):
        base = y - height / 2 + PAD + LINE * at + 12
        style = ' class="name"' if at == 0 else ""
        yield f'<text x="{x:.1f}" y="{base:.1f}" text-anchor="middle"{style}>{escape(line)}</text>'
    yield "</g>"


_PAGE = """<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" \
viewBox="0 0 {width:.0f} {height:.0f}">
<defs><marker id="tip" viewBox="0 0 8 8" refX="6" refY="4" markerWidth="7" markerHeight="7" orient="auto">\
<path d="M0,0 L8,4 L0,8 z" fill="#667"/></marker></defs>
<style>text {{ font: 12px 'DejaVu Sans', Verdana, sans-serif; fill: #223 }} .title {{ font-size: 18px; \
font-weight: bold }} .name {{ font-weight: bold }} .way {{ fill: none; stroke: #667; stroke-width: 1.2 }}</style>
<rect width="100%" height="100%" fill="white"/>
{body}
</svg>
"""
