"""Loading a 244 MB .caffemodel into the torch engine's net: seconds, and peak memory as a multiple of the file.

Peer: protobuf's own parse of the same bytes. Needs a Python that has torch: CAFFE_ON_GRID_TORCH_PYTHON, the virtual
environment in .cache, or this one.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_CACHED = ROOT / ".cache" / "venv-torch" / "bin" / "python"
PYTHON = os.environ.get("CAFFE_ON_GRID_TORCH_PYTHON", str(_CACHED) if _CACHED.exists() else sys.executable)
RUNS = 3
MIB = 1024 * 1024
NET = (
    'name: "fc" layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 1 dim: 9216 } } }'
    + "".join(
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}"'
        f" inner_product_param {{ num_output: {outputs} }} }}"
        for name, bottom, outputs in (("fc6", "data", 4096), ("fc7", "fc6", 4096), ("fc8", "fc7", 1000))
    )
)


def resident() -> int:
    """Peak bytes so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def ours(path: Path) -> dict[str, float]:
    """Build the net, then load; memory counts from the built net on."""
    from caffe_on_grid.engine import registry
    from caffe_on_grid.engine.api import EnginePlan
    from caffe_on_grid.proto import schema, text

    solver = schema.SolverParameter(type="SGD")
    engine = registry.create("torch", EnginePlan(solver, None, (text.parse(schema.NetParameter, NET, "net"),), seed=1))
    if not path.exists():
        for blob in engine.all_params():
            blob[...] = 0.5
        engine.save_model(path)
    before, start = resident(), time.perf_counter()
    engine.load_weights(path)
    return {"seconds": time.perf_counter() - start, "memory": (resident() - before) / path.stat().st_size}


def protobuf(path: Path) -> dict[str, float]:
    """Parse the file as a NetParameter."""
    from caffe_on_grid.proto import schema

    before, start = resident(), time.perf_counter()
    schema.NetParameter.FromString(path.read_bytes())
    return {"seconds": time.perf_counter() - start, "memory": (resident() - before) / path.stat().st_size}


def child(which: str, path: Path) -> dict[str, float]:
    """One measurement in a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [PYTHON, __file__, which, str(path)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return json.loads(done.stdout)


def main() -> None:
    """Print one JSON object."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.caffemodel"
        child("ours", path)
        runs = [(child("ours", path), child("protobuf", path)) for _ in range(RUNS)]
        best = [sorted(run[at]["seconds"] for run in runs)[RUNS // 2] for at in (0, 1)]
        memory = [max(run[at]["memory"] for run in runs) for at in (0, 1)]
        found = {"program": "load_model", "mib": round(path.stat().st_size / MIB, 1)}
    names = ("engine", "protobuf")
    found.update({f"{name}_seconds": round(s, 3) for name, s in zip(names, best)})
    found.update({f"{name}_memory": round(m, 2) for name, m in zip(names, memory)})
    print(json.dumps({**found, "load_1min": round(os.getloadavg()[0], 2)}))


if __name__ == "__main__":
    if len(sys.argv) == 1:
        main()
    else:
        print(json.dumps({"ours": ours, "protobuf": protobuf}[sys.argv[1]](Path(sys.argv[2]))))
