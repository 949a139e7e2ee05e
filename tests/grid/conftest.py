"""The grid is started once for all tests here and always stopped; a failed test shows its applications' logs."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from grids import ROOT, TAG, Grid

from caffe_on_grid.storage import hdfs


def pytest_configure(config):
    config.addinivalue_line("markers", "grid: starts HDFS and YARN; only with -m grid (make test-grid)")


def pytest_collection_modifyitems(config, items):
    """Marks every test here, and leaves them all out unless the command line asks for them by `-m grid`."""
    here = Path(__file__).parent
    mine = [item for item in items if here in item.path.parents]
    for item in mine:
        item.add_marker("grid")
        if not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(600))  # some run several jobs, each of which may take long
    if "grid" not in config.option.markexpr:
        items[:] = [item for item in items if item not in mine]
        config.hook.pytest_deselected(items=mine)


@pytest.fixture(scope="session")
def grid():
    """The running grid. One that a person has started is used, and left running."""
    found = Grid(ROOT / ".cache" / "grid")
    mine = not found.running()
    try:
        found.script("start")
        yield found
    finally:
        if mine:
            found.script("stop")


@pytest.fixture
def hdfs_folder(grid):
    """The path of an HDFS folder of this test's own, removed after it."""
    path = f"/tests/{uuid.uuid4().hex[:12]}"
    store = hdfs.storage()
    store.make_folder(grid.hdfs + path)
    yield path
    with pytest.MonkeyPatch.context() as patch:
        for name in ("HADOOP_CONF_DIR", "HADOOP_USER_NAME", "HADOOP_TOKEN_FILE_LOCATION"):
            patch.delenv(name, raising=False)
        if store.exists(grid.hdfs + path):
            store.remove(grid.hdfs + path)


@pytest.fixture(autouse=True)
def _applications(request):
    """Remembers when the test began; afterwards kills what it left in YARN, so that the next test finds room."""
    if "grid" not in request.fixturenames:
        yield
        return
    found = request.getfixturevalue("grid")
    request.node.grid_began = (found, int(time.time() * 1000))
    yield
    for application in found.unfinished():
        found.kill(application)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if call.when == "call" and report.failed and hasattr(item, "grid_began"):
        found, began_ms = item.grid_began
        for application in found.applications(f"startedTimeBegin={began_ms}&applicationTags={TAG}"):
            words = f"{application['state']} {application['finalStatus']}: {application['diagnostics']}"
            report.sections.append((f"{application['id']} {words}", found.logs(application["id"])[-20000:]))
