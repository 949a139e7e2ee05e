"""What any engine must do with files: models, weights by layer name, snapshots. Run by engine_cases.py."""

from __future__ import annotations

from pathlib import Path

from contract.engine_nets import ACCURACY, DROPOUT, NORM, SGD, batches, net, plan, refused, same, snapshot_of, train

from caffe_on_grid.errors import TrainingFailed
from caffe_on_grid.proto import schema


def resumed_equals_unbroken(make: object, solver: str, middle: str) -> None:
    data = batches(10, 8)
    build = lambda: make(plan(solver, net(8, middle), (net(8, end=ACCURACY),)))  # noqa: E731
    unbroken = build()
    train(unbroken, data[:5])
    unbroken.reseed(77)
    saved = unbroken.save("small")
    assert saved.model.is_file() and saved.state.is_file() and saved.model.name.startswith("small_iter_5.caffemodel")
    train(unbroken, data[5:])
    resumed = build()
    resumed.restore(saved.state)
    resumed.reseed(77)
    assert resumed.iteration == 5
    train(resumed, data[5:])
    assert resumed.iteration == 10
    same(resumed.all_params(), unbroken.all_params())


def case_resumed_equals_unbroken_sgd(make: object) -> None:
    resumed_equals_unbroken(make, SGD, DROPOUT + NORM)


def case_resumed_equals_unbroken_adam_hdf5(make: object) -> None:
    more = ' type: "Adam" momentum2: 0.99 snapshot_format: HDF5 snapshot_prefix: "x/y/small"'
    resumed_equals_unbroken(make, SGD + more, DROPOUT)


def case_restore_refuses_what_does_not_fit(make: object) -> None:
    engine = make(plan(SGD, net()))
    saved = engine.save("other")
    assert saved.state.name == "other_iter_0.solverstate" and saved.model.is_file()
    words = ("Incorrect length of history blobs", str(saved.state))
    refused(words, lambda: make(plan(SGD + ' type: "Adam"', net())).restore(saved.state))
    refused(("no such file", "none.solverstate"), lambda: engine.restore(Path("none.solverstate")))
    saved.model.unlink()
    refused(("other_iter_0.caffemodel", "no such file"), lambda: engine.restore(saved.state))
    Path("bad.solverstate").write_bytes(b"\xff\xff not a state")
    refused(("bad.solverstate", "not a .solverstate"), lambda: engine.restore(Path("bad.solverstate")))


def case_weights_are_copied_by_name(make: object) -> None:
    source, target = make(plan(SGD, net())), make(plan(SGD, net(), seed=6))
    for name in ("w.caffemodel", "w.caffemodel.h5"):
        for blob in target.params:
            blob[...] = 0
        source.save_model(Path(name))
        report = target.load_weights(Path(name))
        same(source.params, target.params)
        assert report is None or (report.loaded, report.ignored, report.fresh) == (("a", "b"), (), ())
    renamed = net(middle=NORM)
    renamed.layer[1].name = "mine"
    other = make(plan(SGD, renamed))
    report = other.load_weights(Path("w.caffemodel"))
    assert (report.loaded, report.ignored, report.fresh) == (("b",), ("a",), ("mine", "bn", "sc")), report
    same(source.params[2:], other.params[-2:])


def case_a_model_needs_its_folder(make: object) -> None:
    try:
        make(plan(SGD, net())).save_model(Path("nowhere/w.caffemodel"))
    except TrainingFailed as error:
        assert "nowhere/w.caffemodel" in str(error)
    else:
        raise AssertionError("written nowhere")


def case_weights_of_another_shape_are_refused(make: object) -> None:
    source = make(plan(SGD, net()))
    source.save_model(Path("w.caffemodel"))
    wide = net()
    wide.layer[3].inner_product_param.num_output = 4
    target = make(plan(SGD, wide))
    before = snapshot_of(target.params)
    shapes = "Source param shape is 3 8 (24); target param shape is 4 8 (32)."
    refused(
        ("Cannot copy param 0 weights from layer 'b'; shape mismatch.  " + shapes, "rename the layer"),
        lambda: target.load_weights(Path("w.caffemodel")),
    )
    same(before, target.params)
    refused(("gone.caffemodel", "No such file"), lambda: target.load_weights(Path("gone.caffemodel")))


def case_old_four_number_shapes_match(make: object) -> None:
    source, target = make(plan(SGD, net())), make(plan(SGD, net(), seed=6))
    source.save_model(Path("new.caffemodel"))
    model = schema.NetParameter.FromString(Path("new.caffemodel").read_bytes())
    for layer in model.layer:
        for blob in layer.blobs:
            shape = (1, 1, 1, 1, *blob.shape.dim)[-4:]
            blob.num, blob.channels, blob.height, blob.width = shape
            blob.ClearField("shape")
    Path("old.caffemodel").write_bytes(model.SerializeToString())
    target.load_weights(Path("old.caffemodel"))
    same(source.params, target.params)
