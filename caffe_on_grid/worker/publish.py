"""Publishing snapshots while the next steps run: in a process of its own, since the solver never lets a thread run.

`python -m caffe_on_grid.worker.publish FOLDER PREFIX MODEL STATE` with the manifest's fields as JSON on standard input.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Optional

from caffe_on_grid.engine.api import Snapshot
from caffe_on_grid.errors import GridError, TrainingFailed
from caffe_on_grid.spec import program
from caffe_on_grid.spec.report import Saved
from caffe_on_grid.storage import snapshots
from caffe_on_grid.storage.patience import patiently
from caffe_on_grid.worker.report import Reporter


class Publisher:
    """At most one snapshot under way; the next one waits for it."""

    def __init__(self) -> None:
        """Nothing is under way."""
        self._process: Optional[subprocess.Popen[str]] = None
        self._snapshot: Optional[Snapshot] = None
        self._begin = 0.0
        self._reporter: Optional[Reporter] = None
        self._iteration = 0

    def start(self, snapshot: Snapshot, folder: str, prefix: str, fields: dict[str, Any], reporter: Reporter) -> None:
        """Publish `snapshot` (local files, removed afterwards) into `folder`."""
        self.finish()
        words = [folder, prefix, str(snapshot.model), str(snapshot.state)]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "caffe_on_grid.worker.publish", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(fields))
        self._process.stdin.close()
        self._process.stdin = None
        self._snapshot, self._begin, self._reporter = snapshot, time.perf_counter(), reporter
        self._iteration = int(fields["iteration"])

    def poll(self) -> None:
        """Note the end of what is under way, if it has ended; raises TrainingFailed if it failed."""
        if self._process is not None and self._process.poll() is not None:
            self.finish()

    def finish(self) -> None:
        """Wait for what is under way; raises TrainingFailed if it failed."""
        if self._process is None:
            return
        out, err = self._process.communicate()
        code, self._process = self._process.returncode, None
        if code != 0:
            reason = (err.strip().splitlines() or ["no word"])[-1]
            raise TrainingFailed(f"the snapshot of iteration {self._iteration} could not be written: {reason}")
        assert self._snapshot is not None and self._reporter is not None
        self._snapshot.model.unlink()
        self._snapshot.state.unlink()
        took = time.perf_counter() - self._begin
        self._reporter.send(Saved(0, time.time(), self._iteration, out.strip(), took))


def main() -> int:
    """Publish one snapshot and print its manifest's URI; a store that is away is waited for."""
    program.end_in_order()
    folder, prefix, model, state = sys.argv[1:]
    fields = json.load(sys.stdin)
    try:
        print(patiently(lambda: snapshots.publish(folder, prefix, (Path(model), Path(state)), fields)))
    except GridError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
