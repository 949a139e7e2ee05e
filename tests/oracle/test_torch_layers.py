"""The torch engine's nets against real Caffe: random configurations of every layer, and whole small nets."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from oracle import net_cases, net_examples

torch = pytest.importorskip("torch", reason="the torch engine's tests need torch: run them in a Python that has it")

from caffe_on_grid.engine.torch.net import Net  # noqa: E402
from caffe_on_grid.engine.torch.random import Stream  # noqa: E402
from caffe_on_grid.proto import graph, schema, text, upgrade  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.runtime]

COUNT = int(os.environ.get("CAFFE_ON_GRID_ORACLE_CASES", "8"))
SEED = int(os.environ.get("CAFFE_ON_GRID_ORACLE_SEED", "1"))
CASES = {case["name"]: case for case in [*net_cases.draw(COUNT, SEED), *net_examples.CASES]}


@pytest.fixture(scope="module")
def wanted(tmp_path_factory: Any, in_runtime: Any) -> Any:
    """The folder of what real Caffe gave, one process for all cases."""
    folder = tmp_path_factory.mktemp("caffe")
    (folder / "cases.json").write_text(json.dumps(list(CASES.values())))
    program = net_cases.__file__.replace("net_cases.py", "nets_in_caffe.py")
    done = in_runtime([program, str(folder)], cwd=folder, check=False, timeout=240)
    last = (done.stdout.splitlines() or [""])[-1]
    assert done.returncode == 0, f"{last}: {done.stderr[-2000:]}\n{CASES.get(last, {}).get('net')}"
    return folder


def arrays(case: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values, as nets_in_caffe.py gives them."""
    param = upgrade.upgrade_net(text.parse(schema.NetParameter, case["net"], "net"))
    phase = {"TRAIN": schema.TRAIN, "TEST": schema.TEST}[case["phase"]]
    param = graph.filter_net(param, schema.NetState(phase=phase))
    net = Net(param, phase, torch.device("cpu"), Stream(5), train_like=True, strict=case.get("strict", False))
    net.keep_diffs = True
    params = {f"{layer.name}/{i}": p for layer in net.layers for i, p in enumerate(layer.params)}
    shapes = {f"{layer.name}/{i}": shape for layer in net.layers for i, shape in enumerate(net.param_shapes(layer))}
    yield from ((f"init:{key}", p.data.numpy().reshape(shapes[key])) for key, p in params.items())
    for key, value in net_cases.new_params(case, shapes).items():
        params[key].assign(torch.from_numpy(np.asarray(value)))
    for at in range(case["passes"]):
        net.forward(net_cases.inputs(case, at))
        yield from ((f"{at}:blob:{n}", net.blob(n).detach().numpy()) for n in net.blob_names if "_split" not in n)
        if case["backward"]:
            for p in params.values():
                p.diff.zero_()
            net.backward()
            for name in case["diffs"]:
                diff = net.diff(name)
                yield f"{at}:diff:{name}", np.zeros(net.blob(name).shape) if diff is None else diff.numpy()
            yield from ((f"{at}:paramdiff:{key}", p.diff.numpy().reshape(shapes[key])) for key, p in params.items())
        yield from ((f"{at}:param:{key}", p.data.numpy().reshape(shapes[key])) for key, p in params.items())


def error(value: Any, wanted: Any) -> float:
    """Largest difference over the largest magnitude; NaN must be in the same places."""
    assert value.shape == wanted.shape, (value.shape, wanted.shape)
    if not wanted.size:
        return 0.0
    assert (np.isnan(value) == np.isnan(wanted)).all()
    scale = max(float(np.nanmax(np.abs(wanted), initial=0)), 1e-3)
    return float(np.nanmax(np.abs(value - wanted), initial=0)) / scale


@pytest.mark.parametrize("name", list(CASES))
def test_like_caffe(name: str, wanted: Any) -> None:
    """Filled parameters bit by bit; the rest to 2e-5 of the largest magnitude (sums run in another order)."""
    case = CASES[name]
    compared = 0
    with np.load(wanted / f"{name}.npz", allow_pickle=False) as file:
        for key, value in arrays(case):
            if key in file.files and ":paramdiff:pre_" not in key:  # a sum over the bottom's, which may cancel out
                limit = 0.0 if key.startswith("init:") else case.get("tolerance", 2e-5)
                found = error(value, file[key])
                assert found <= limit, f"{key}: {found:g}\n{value}\n{file[key]}\n{case['net']}"
                compared += 1
        missing = [key for key in file.files if ":diff:" in key or ":blob:" in key]
    assert compared >= len(missing), case["net"]
