"""The proto room's checks, in this Python and in the runtime's (protobuf 3.12, beside a real `import caffe`)."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import proto_checks
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caffe_on_grid.errors import ConfigError
from caffe_on_grid.proto import schema, text


@pytest.mark.parametrize("name", list(proto_checks.CHECKS))
def test_check(name: str) -> None:
    proto_checks.CHECKS[name]()


@pytest.mark.runtime
def test_checks_in_the_runtime(in_runtime) -> None:
    done = in_runtime([proto_checks.__file__])
    assert f"{len(proto_checks.CHECKS)} checks, protobuf 3.12" in done.stdout, done.stdout


def test_runs_from_a_zip_and_loads_no_numpy(root: Path, tmp_path: Path) -> None:
    package = tmp_path / "caffe_on_grid.zip"
    with zipfile.ZipFile(package, "w") as archive:
        for room in ("proto", "spec"):
            for path in (root / "caffe_on_grid" / room).glob("*.*"):
                archive.write(path, path.relative_to(root))
        for name in ("__init__.py", "errors.py"):
            archive.write(root / "caffe_on_grid" / name, f"caffe_on_grid/{name}")
    modules = "graph, lint, lint_shapes, references, schedule, schema, shapes, sizing, text, upgrade, weights"
    program = (
        f"import sys; sys.path.insert(0, {str(package)!r}); from caffe_on_grid.proto import {modules}; "
        "assert '.zip' in schema.__file__; assert 'numpy' not in sys.modules; "
        "print(text.parse(schema.NetParameter, 'layer { name: \"z\" }', 'n').layer[0].name)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "z\n", done.stderr


_PIECES = st.sampled_from(
    [
        *"{}[]<>:,;-#\n '\"\\\0é",
        "layer",
        "name",
        "1",
        "0x",
        "1e9",
        "true",
        "'s'",
        "input_dim",
        "TRAIN",
        "convolution_param",
        "loss_weight",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=40).map("".join))
def test_any_text_is_read_or_refused(source: str) -> None:
    try:
        net = text.parse(schema.NetParameter, source, "net")
    except ConfigError as error:
        assert str(error).startswith("net:")
        return
    assert text.parse(schema.NetParameter, text.render(net), "rendered") == net
