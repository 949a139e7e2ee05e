"""What any engine must do. `engine_cases.py ENGINE`, in the ranks' Python, prints case → "ok" or a traceback."""

from __future__ import annotations

import json
import os
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path

import numpy as np
from contract import engine_file_cases
from contract.engine_nets import (
    ACCURACY,
    CLASSES,
    DROPOUT,
    LOSS,
    PLAIN,
    SGD,
    Quiet,
    batches,
    close,
    net,
    plan,
    refused,
    same,
    snapshot_of,
    train,
)

from caffe_on_grid.engine import registry
from caffe_on_grid.engine.api import Engine, EnginePlan


def case_iter_size_takes_its_own_batches(make: object) -> None:
    two = batches(6)
    one = [{k: np.concatenate([two[i][k], two[i + 1][k]]) for k in two[i]} for i in range(0, 6, 2)]
    halves, whole = make(plan(SGD + " iter_size: 2", net(4))), make(plan(SGD, net(8)))
    close(train(halves, two, 2), train(whole, one))
    close(halves.params, whole.params)
    assert halves.iteration == whole.iteration == 3


def case_hooks_come_in_order_and_gradients_are_final(make: object) -> None:
    engine = make(plan(SGD + " iter_size: 2", net()))
    seen: dict = {}

    def keep(first: int, last: int) -> None:
        seen.update({i: engine.grads[i].copy() for i in range(first, last + 1)})

    hooks = Quiet(ready=keep, gradients=lambda: close([seen[i] for i in sorted(seen)], engine.grads, 0))
    engine.step(iter(batches(2)), hooks)
    assert hooks.calls == [("start",), ("ready", 2, 3), ("ready", 0, 1), ("gradients",)], hooks.calls


def case_changed_gradients_are_what_the_update_uses(make: object) -> None:
    engine = make(plan(PLAIN, net()))
    before = snapshot_of(engine.params)

    def change() -> None:
        for grad in engine.grads:
            grad[...] = 2.0

    engine.step(iter(batches(1)), Quiet(gradients=change))
    close(engine.params, [b - np.float32(0.2) for b in before])


def case_changed_parameters_are_what_the_pass_uses(make: object) -> None:
    engine = make(plan(PLAIN, net()))

    def change() -> None:
        for param in engine.params:
            param[...] = 0

    result = engine.step(iter(batches(1)), Quiet(start=change))
    assert abs(result.loss - np.log(CLASSES)) < 1e-6, result
    assert list(result.outputs) == ["loss"] and abs(result.lr - 0.1) < 1e-7, result


def case_loss_weights_count(make: object) -> None:
    second = (
        LOSS + ' layer { name: "loss2" type: "SoftmaxWithLoss" bottom: "b" bottom: "label" loss_weight: 0.5 top: "z" }'
    )
    engine = make(plan(SGD, net(end=second)))
    result = engine.step(iter(batches(1)), Quiet())
    assert abs(result.loss - 1.5 * float(result.outputs["loss"])) < 1e-6, result
    weights = {top: w for layer in engine.layers() for top, w in zip(layer.tops, layer.loss_weights) if w}
    assert weights == {"loss": 1.0, "z": 0.5}, weights


def case_learning_rate_follows_the_policy(make: object) -> None:
    steps = 'base_lr: 0.1 lr_policy: "multistep" gamma: 0.5 stepvalue: 1 stepvalue: 2 max_iter: 9'
    engine = make(plan(steps, net()))
    feed = iter(batches(4))
    rates = [engine.step(feed, Quiet()).lr for _ in range(4)]
    close([np.array(rates)], [np.array([0.1, 0.05, 0.025, 0.025])], 1e-8)


def case_errors_in_hooks_surface_as_themselves(make: object) -> None:
    class Boom(Exception):
        pass

    def boom(*_: int) -> None:
        raise Boom("from the hook")

    def broken() -> object:
        boom()
        yield {}

    for hooks, feed in [(Quiet(**{n: boom}), iter(batches(1))) for n in ("start", "ready", "gradients")] + [
        (Quiet(), broken())
    ]:
        engine = make(plan(SGD, net()))
        try:
            engine.step(feed, hooks)
        except Boom as error:
            assert str(error) == "from the hook" and engine.iteration == 0
        else:
            raise AssertionError(f"lost: {hooks.then}")
    assert np.isfinite(train(make(plan(SGD, net())), batches(1))[0])


def case_shared_frozen_and_statistics_are_told_apart(make: object) -> None:
    shared = (
        'layer { name: "h1" type: "InnerProduct" bottom: "t" top: "h1" param { name: "w" } param { name: "v" }'
        " inner_product_param { num_output: 8 weight_filler { type: 'xavier' } } }"
        'layer { name: "h2" type: "InnerProduct" bottom: "h1" top: "h2" param { name: "w" } param { name: "v" }'
        " inner_product_param { num_output: 8 weight_filler { type: 'xavier' } } }"
        'layer { name: "frozen" type: "InnerProduct" bottom: "h2" top: "f" param { lr_mult: 0 } param { lr_mult: 2 }'
        " inner_product_param { num_output: 8 weight_filler { type: 'xavier' } } }"
        'layer { name: "bn" type: "BatchNorm" bottom: "f" top: "bn" }'
        'layer { name: "out" type: "Power" bottom: "bn" top: "t2" }'
    )
    message = net(middle=shared)
    message.layer[-2].bottom[0] = "t2"
    engine = make(plan(SGD, message))
    shapes = lambda blobs: [tuple(b.shape) for b in blobs]  # noqa: E731
    assert shapes(engine.params) == [(8, 5), (8,), (8, 8), (8,), (8,), (3, 8), (3,)], shapes(engine.params)
    assert shapes(engine.grads) == shapes(engine.params)
    assert shapes(engine.statistics) == [(8,), (8,), (1,)]
    assert shapes(engine.all_params()) == [(8, 5), (8,), (8, 8), (8,), (8, 8), (8,), (8,), (8,), (1,), (3, 8), (3,)]
    before, hooks = snapshot_of(engine.all_params()), Quiet()
    engine.step(iter(batches(1)), hooks)
    assert [c for c in hooks.calls if c[0] == "ready"] == [
        ("ready", 5, 6),
        ("ready", 4, 4),
        ("ready", 2, 3),
        ("ready", 0, 1),
    ]
    changed = [bool((a != b).any()) for a, b in zip(before, engine.all_params())]
    assert changed == [True] * 4 + [False] + [True] * 6, changed
    assert all(view.base is not None and view.dtype == np.float32 for view in engine.params)


def case_views_stay_those_of_the_solver(make: object) -> None:
    engine = make(plan(SGD, net()))
    views = list(engine.params)
    train(engine, batches(2))
    same(views, engine.params)


def case_evaluation_uses_present_parameters_and_copies(make: object) -> None:
    engine = make(plan(SGD, net(), (net(6, DROPOUT, ACCURACY + LOSS), net(2, end=ACCURACY))))
    batch = batches(1, 6)[0]
    first = engine.evaluate(0, batch)
    kept = float(first["loss"])
    assert list(first) == ["accuracy", "loss"] and first["loss"].shape == ()
    same([first["loss"]], [engine.evaluate(0, batch)["loss"]])  # no dropout when testing
    train(engine, batches(20))
    second = engine.evaluate(0, batch)
    assert float(first["loss"]) == kept != float(second["loss"])
    assert list(engine.evaluate(1, batches(1, 2)[0])) == ["accuracy"]
    logits = engine.forward(batch, ["b"])["b"]
    losses = np.log(np.exp(logits).sum(1)) - logits[np.arange(6), batch["label"].astype(int)]
    close([losses.mean()], [second["loss"]])
    refused(("'bb'", "did you mean 'b'"), lambda: engine.forward(batch, ["bb"]))
    assert engine.blob_shape("b") == (4, 3) and engine.blob_shape("b", 0) == (6, 3)


def case_reseeding_repeats_the_dropout(make: object) -> None:
    engine = make(plan(PLAIN.replace("0.1", "0"), net(middle=DROPOUT)))
    batch, losses = batches(1), []
    for seed in (1, 2, 1):
        engine.reseed(seed)
        losses += train(engine, batch)
    assert losses[0] == losses[2] != losses[1], losses


def case_ranks_draw_their_own_stream(make: object) -> None:
    alone = make(plan(SGD, net(), seed=6))
    second = make(plan(SGD, net(), seed=5, rank=1, world=2))
    same(alone.params, second.params)
    train(second, batches(2))
    try:
        second.save("small")
    except RuntimeError as error:
        assert "rank 1" in str(error)
    else:
        raise AssertionError("rank 1 wrote a snapshot")


def case_a_job_that_only_tests(make: object) -> None:
    trained = make(plan(SGD, net(), (net(6),)))
    train(trained, batches(5))
    trained.save_model(Path("t.caffemodel"))
    batch = batches(1, 6)[0]
    engine = make(plan(SGD, None, (net(6, end=ACCURACY + LOSS),)))
    engine.load_weights(Path("t.caffemodel"))
    same([trained.evaluate(0, batch)["loss"]], [engine.evaluate(0, batch)["loss"]])
    assert engine.iteration == 0 and len(engine.all_params()) == 4


def case_two_test_nets_alone_share_parameters(make: object) -> None:
    engine = make(plan(SGD, None, (net(6), net(6))))
    batch = batches(1, 6)[0]
    same([engine.evaluate(1, batch)["loss"]], [engine.evaluate(0, batch)["loss"]])


def case_bad_plans_are_refused_in_words(make: object) -> None:
    wrong = net()
    wrong.layer[2].type = "Tanh"
    refused(("layer 'tanh'", "unknown layer type 'Tanh'", "did you mean 'TanH'"), lambda: make(plan(SGD, wrong)))
    refused(("unknown type 'Adem'", "did you mean 'Adam'"), lambda: make(plan(SGD + ' type: "Adem"', net())))
    engine = make(plan(SGD, net()))
    refused(("'data'", "(4, 5)", "(3, 5)"), lambda: train(engine, batches(1, 3)))


def case_layers_and_times(make: object) -> None:
    engine = make(plan(SGD, net(), (net(2, end=ACCURACY + LOSS),)))
    info = {layer.name: layer for layer in engine.layers()}
    assert info["a"].top_shapes == ((4, 8),) and info["a"].param_shapes == ((8, 5), (8,)), info["a"]
    assert info["a"].bottoms == ("data",) and info["a"].type == "InnerProduct"
    assert {layer.type for layer in engine.layers(0)} >= {"Split", "Accuracy"}
    times = engine.time_layers(3, batches(1)[0])
    assert [t.name for t in times] == [layer.name for layer in engine.layers()]
    assert all(t.forward_s > 0 and t.backward_s > 0 for t in times)
    assert np.isfinite(train(engine, batches(1))[0])


def case_rules_and_states_are_not_applied_twice(make: object) -> None:
    message = net()
    message.layer[2].include.add(stage=["only"])
    message.state.stage.append("only")
    solver = plan(SGD, message)
    solver.solver.train_state.stage.append("only")
    engine = make(replace(solver, test_nets=(net(end=LOSS),)))
    assert "tanh" in [layer.name for layer in engine.layers()]


CASES = {
    name[5:]: value
    for name, value in [*globals().items(), *vars(engine_file_cases).items()]
    if name.startswith("case_")
}


def make(engine: str, wanted: EnginePlan) -> Engine:
    """The engine; "torch+copies": with its arrays in memory of their own, as on a GPU; "torch+gpu": on GPU 0."""
    made = registry.create(engine.split("+")[0], replace(wanted, gpu=0 if engine.endswith("+gpu") else None))
    if engine.endswith("+copies"):
        made.share_memory(copies=True)
    return made


def main(engine: str) -> None:
    """Run every case in a folder of its own; print the outcomes as one JSON object."""
    outcomes = {}
    for name, case in CASES.items():
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                case(lambda wanted: make(engine, wanted))
                outcomes[name] = "ok"
            except Exception:
                outcomes[name] = traceback.format_exc()
            os.chdir("/")
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(sys.argv[1])
