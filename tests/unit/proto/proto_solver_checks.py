"""Schedules and warnings."""

from __future__ import annotations

import math

from proto_case import net_of, refused, solver_of

from caffe_on_grid.proto import graph, lint, schedule


def rate(source: str, iteration: int) -> float:
    return schedule.learning_rate(solver_of("base_lr: 0.5 " + source), iteration)


def check_schedule_values() -> None:
    cases = (
        ('lr_policy: "fixed"', 7, 0.5),
        ('lr_policy: "step" gamma: 0.1 stepsize: 3', 6, 0.005),
        ('lr_policy: "exp" gamma: 0.5', 3, 0.0625),
        ('lr_policy: "inv" gamma: 1 power: 2', 1, 0.125),
        ('lr_policy: "multistep" gamma: 0.5 stepvalue: [2, 4]', 3, 0.25),
        ('lr_policy: "multistep" gamma: 0.5', 3, 0.5),
        ('lr_policy: "poly" max_iter: 10 power: 2', 5, 0.125),
        ('lr_policy: "poly" max_iter: 10 power: 2', 20, 0.5),
        ('lr_policy: "sigmoid" gamma: 1 stepsize: 5', 5, 0.25),
        ('lr_policy: "sigmoid" gamma: 1000 stepsize: 5', 0, 0.0),
        ('lr_policy: "exp" gamma: 10', 400, math.inf),
        ('lr_policy: "step" stepsize: 1', 1, 0.0),
    )
    for source, iteration, wanted in cases:
        got = rate(source, iteration)
        assert got == wanted or abs(got - wanted) < 1e-7, (source, got)
    assert math.isnan(rate('lr_policy: "poly" max_iter: 10 power: 0.5', 11))


def check_schedule_multistep_advances_once_a_query() -> None:
    solver = solver_of('base_lr: 1 lr_policy: "multistep" gamma: 0.5 stepvalue: [2, 2, 1]')
    assert [schedule.multistep(solver, it) for it in range(6)] == [0, 0, 1, 2, 3, 3]
    assert schedule.multistep(solver, 5, 0) == 1 and schedule.multistep(solver, 1, 0) == 0
    assert schedule.learning_rate(solver, 5, 1) == 0.25 and schedule.multistep(solver, 9, 3) == 3


def check_schedule_refusals() -> None:
    cases = (
        ("", "lr_policy is missing; known: fixed, step"),
        ('lr_policy: "stepp"', "unknown lr_policy 'stepp' (did you mean 'step'?)"),
        ('lr_policy: "step" gamma: 1', "stepsize is 0, expected > 0"),
        ('lr_policy: "exp" gamma: -1', "gamma is -1, expected >= 0"),
        ('lr_policy: "poly"', "max_iter is 0"),
    )
    for source, wanted in cases:
        assert wanted in refused(rate, source, 0)
    fixed = 'lr_policy: "fixed" '
    for source, wanted in (
        ('type: "sgd"', "unknown type 'sgd' (did you mean 'SGD'?)"),
        ('type: "AdaGrad" momentum: 0.9', "momentum is 0.9: it cannot be used with AdaGrad"),
        ('type: "RMSProp" rms_decay: 1', "rms_decay is 1, expected 0 <= rms_decay < 1"),
        ('weight_decay: 1 regularization_type: "L3"', "unknown regularization_type 'L3'"),
        ("iter_size: 0", "iter_size is 0, expected 1 or more"),
        ("average_loss: 0", "average_loss is 0, expected 1 or more"),
    ):
        assert wanted in refused(schedule.check, solver_of(fixed + source))
    schedule.check(solver_of(fixed + 'regularization_type: "L3"'))


def lines_of(solver: str, train: str = "", test: str = "") -> list[str]:
    loss = 'layer { name: "l" type: "SoftmaxWithLoss" }'
    tests = (net_of(test),) if test else ()
    return lint.warnings(solver_of("base_lr: 1 " + solver), graph.SolverNets(net_of(train + loss), tests))


def check_lint() -> None:
    ip = 'layer { name: "ip" type: "InnerProduct" %s }'
    cases = (
        ('type: "AdaGrad" momentum: 0.9', "", "", "Caffe refuses this"),
        ('type: "Adam"', "", "", "beta1 is 0"),
        ('lr_policy: "step" stepsize: 2', "", "", "the rate becomes 0"),
        ('lr_policy: "fixed" stepvalue: 2', "", "", "stepvalue has no effect"),
        ('lr_policy: "multistep" gamma: 0.1 stepvalue: [3, 2]', "", "", "not in rising order"),
        ('lr_policy: "multistep" gamma: 0.1 stepvalue: [3, 20] max_iter: 9', "", "", "stepvalue 20 is not reached"),
        ("snapshot: 10 max_iter: 5", "", "", "no snapshot before the end"),
        ("test_interval: 5", "", "", "test_interval without test_iter"),
        ("test_interval: 5 test_iter: [3, 0]", "", "", "test_iter 0 makes a test one pass over the source"),
        ("clip_gradients: 1 iter_size: 2", "", "", "clip_gradients bounds"),
        ("", ip % "", "", "layer 'ip': without a weight_filler"),
        (
            "",
            ip % 'param { lr_mult: 0 } inner_product_param { weight_filler { type: "xavier" } }',
            "",
            "the bias learns",
        ),
        (
            "",
            'layer { name: "d" type: "Data" data_param { mean_file: "m" } }',
            "",
            "data_param.mean_file has no effect",
        ),
        ("iter_size: 2", 'layer { name: "p" type: "Parameter" }', "", "Parameter layer keeps the last of 2"),
        ("", "", 'layer { name: "x" bottom: "data" }', "TEST net 0 has no layer that brings data"),
        ("", "", 'layer { type: "BatchNorm" batch_norm_param { use_global_stats: false } }', "use_global_stats: false"),
    )
    for solver, train, test, wanted in cases:
        found = lines_of(solver, train, test)
        assert len(found) == 1 and wanted in found[0] and "\n" not in found[0], (wanted, found)
    clean = 'param { lr_mult: 1 } param { lr_mult: 2 } inner_product_param { weight_filler { type: "xavier" } }'
    assert lines_of('lr_policy: "fixed" momentum: 0.9', ip % clean, 'layer { type: "Input" top: "data" }') == []
    bare = graph.SolverNets(net_of('layer { type: "ReLU" }'), ())
    assert any("no loss" in line for line in lint.warnings(solver_of("base_lr: 1"), bare))
    assert any("base_lr is 0" in line for line in lint.warnings(solver_of(""), bare))
