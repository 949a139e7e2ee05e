"""docs/caffe-compatibility.md is what the tables say. ACCEPT=1 pytest tests/unit/test_compatibility.py rewrites it."""

from __future__ import annotations

import os
import re
from pathlib import Path

import compatibility
import pytest

from caffe_on_grid.proto import schema, shapes


def test_the_page_is_what_the_tables_say(root: Path) -> None:
    path = root / "docs" / "caffe-compatibility.md"
    if os.environ.get("ACCEPT"):
        path.write_text(compatibility.page(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == compatibility.page(), f"ACCEPT=1 pytest {__file__}"


def test_exceptions_are_of_fields_and_types_that_exist() -> None:
    known = {f"{message}.{field}" for message, fields in schema.MESSAGES.items() for field in fields}
    assert set(compatibility.FIELDS) <= known
    assert set(compatibility.TYPES) <= set(shapes.RULES)


def test_types_that_are_built_have_shapes() -> None:
    assert compatibility.torch_types() - {"Split"} <= set(shapes.RULES)
    assert set(shapes.CAFFE) - compatibility.torch_types() <= {
        "Data",
        "HDF5Data",
        "ImageData",
        "MemoryData",
        "WindowData",
    }


def test_no_field_is_called_the_same_that_nothing_reads(root: Path) -> None:
    """A guard, not a proof: the name of each such field stands in some module."""
    source = "\n".join(path.read_text(encoding="utf-8") for path in sorted((root / "caffe_on_grid").rglob("*.py")))
    words = set(re.findall(r"\w+", source))
    same = [
        f"{message}.{field}"
        for message, fields in schema.MESSAGES.items()
        for field in fields
        if compatibility.note(message, field)[0] == "same" and not message.startswith("V")
    ]
    assert len(same) > 300
    assert [name for name in same if name.partition(".")[2] not in words] == []


def test_the_registries_are_those_of_the_modules() -> None:
    pytest.importorskip("torch.nn")
    from caffe_on_grid.engine.torch import layers

    assert set(layers.LAYERS) == compatibility.torch_types()
