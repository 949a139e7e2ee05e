"""The `test` task: the mean of each output of a TEST net over its source."""

from __future__ import annotations

from caffe_on_grid.storage.registry import connect
from caffe_on_grid.worker import evaluate
from caffe_on_grid.worker.assemble import Assembly
from caffe_on_grid.worker.report import Reporter
from caffe_on_grid.worker.train import finished, parameter_digest, started


def run(assembly: Assembly, reporter: Reporter) -> None:
    """Evaluate once; rank 0 reports, and writes `blob: v1,v2` lines where the job wants them."""
    reporter.send(started(assembly))
    reporter.at(assembly.engine.iteration, "test")
    inputs = assembly.tests[0]
    tested = evaluate.one_pass(assembly, 0, inputs)
    if tested is not None:
        reporter.send(tested)
        write_text(assembly, tested.outputs)
    assembly.comm.barrier()
    reporter.at(assembly.engine.iteration, "done")
    samples = len(range(assembly.comm.rank, inputs.passes, assembly.comm.size)) * inputs.batch
    reporter.send(finished(assembly, inputs, parameter_digest(assembly.engine), samples))


def write_text(assembly: Assembly, outputs: dict[str, tuple[float, ...]]) -> None:
    """CaffeOnSpark's text form of a test's result."""
    uri = assembly.spec.job.output.text
    if uri is not None:
        lines = (f"{name}: {','.join(f'{v:.6g}' for v in values)}\n" for name, values in outputs.items())
        connect(uri).write("".join(lines).encode(), uri)
