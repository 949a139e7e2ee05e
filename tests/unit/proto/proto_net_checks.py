"""Graphs and references."""

from __future__ import annotations

from proto_case import net_of, refused, solver_of

from caffe_on_grid.proto import graph, references, schema, upgrade

RULES = """
layer { name: "always" type: "Input" top: "a" }
layer { name: "train" type: "Input" top: "b" include { phase: TRAIN } }
layer { name: "test" type: "Input" top: "c" include { phase: TEST } }
layer { name: "not_train" type: "Input" top: "d" exclude { phase: TRAIN } }
layer { name: "stage_x" type: "Input" top: "e" include { stage: "x" } }
layer { name: "stage_xy" type: "Input" top: "f" include { stage: "x" stage: "y" } }
layer { name: "x_or_y" type: "Input" top: "g" include { stage: "x" } include { stage: "y" } }
layer { name: "x_not_y" type: "Input" top: "h" include { stage: "x" not_stage: "y" } }
layer { name: "not_x" type: "Input" top: "i" include { not_stage: "x" } }
layer { name: "level_2up" type: "Input" top: "j" include { min_level: 2 } }
layer { name: "level_to3" type: "Input" top: "k" include { max_level: 3 } }
layer { name: "level_2to3" type: "Input" top: "l" include { min_level: 2 max_level: 3 } }
layer { name: "drop_x" type: "Input" top: "m" exclude { stage: "x" } }
layer { name: "drop_x_test" type: "Input" top: "n" exclude { stage: "x" phase: TEST } }
layer { name: "drop_either" type: "Input" top: "o" exclude { stage: "y" } exclude { min_level: 4 } }
layer { name: "train_2up_or_y" type: "Input" top: "p" include { phase: TRAIN min_level: 2 } include { stage: "y" } }
layer { name: "empty_include" type: "Input" top: "q" include { } }
layer { name: "empty_exclude" type: "Input" top: "r" exclude { } }
layer { name: "negative" type: "Input" top: "s" include { max_level: -1 } }
layer { name: "own_phase" type: "Input" top: "t" phase: TRAIN }
"""
STATES = [
    (phase, level, stages) for phase in (0, 1) for level in (0, 2, 4, -1) for stages in ([], ["x"], ["y"], ["x", "y"])
]
"""States under which RULES are compared with real Caffe."""


def kept(source: str, phase: int, level: int, stages: list[str]) -> list[str]:
    state = schema.NetState(phase=phase, level=level, stage=stages)
    return [layer.name for layer in graph.filter_net(net_of(source), state).layer]


def check_graph_filter() -> None:
    common = ["always", "drop_either", "empty_include", "own_phase"]
    assert kept(RULES, schema.TRAIN, 0, []) == [
        *("always", "train", "not_x", "level_to3", "drop_x", "drop_x_test", "drop_either", "empty_include", "own_phase")
    ]
    assert set(common) < set(kept(RULES, schema.TEST, 2, ["x"])) and "drop_x_test" not in kept(RULES, 1, 2, ["x"])
    assert {"train_2up_or_y", "x_or_y"} < set(kept(RULES, 1, 0, ["y"]))
    assert "drop_either" not in kept(RULES, 0, 4, [])


def check_graph_filter_sets_phase_and_state() -> None:
    net = graph.filter_net(
        net_of('name: "n" force_backward: true' + RULES), schema.NetState(phase=schema.TEST, level=3)
    )
    assert net.state.level == 3 and net.name == "n" and net.force_backward
    assert {layer.name: layer.phase for layer in net.layer}["own_phase"] == schema.TRAIN
    assert net.layer[0].phase == schema.TEST and net.layer[0].HasField("phase")


def check_graph_filter_refuses_both_rules() -> None:
    source = 'layer { name: "both" include { } exclude { } }'
    assert "layer 'both' has include and exclude rules" in refused(kept, source, 0, 0, [])


NETS = {
    "net": 'state { stage: "n" } layer { name: "common" type: "Input" } layer { name: "s" include { stage: "t" } }',
    "a": 'layer { name: "a" }',
    "b": 'layers { name: "b" type: RELU }',
    "bad": 'layer {\n  nmae: "x" }',
}


def nets_of(source: str) -> graph.SolverNets:
    return graph.solver_nets(upgrade.upgrade_solver(solver_of(source)), NETS.__getitem__, "solver.prototxt")


def check_graph_solver_nets() -> None:
    nets = nets_of(
        'net: "net" test_net: "a" test_net: "b" test_net_param { layer { name: "inline" } } test_interval: 1'
        ' test_iter: [1, 2, 3, 4, 5] train_state { stage: "t" }'
        ' test_state {} test_state {} test_state { level: 2 } test_state { stage: "t" } test_state { phase: TRAIN }'
    )
    assert [layer.name for layer in nets.train.layer] == ["common", "s"] and list(nets.train.state.stage) == ["n", "t"]
    assert [[layer.name for layer in net.layer] for net in nets.tests] == [
        *(["inline"], ["a"], ["b"], ["common", "s"], ["common"])
    ]
    assert [net.state.phase for net in nets.tests] == [1, 1, 1, 1, 0] and nets.tests[2].state.level == 2
    assert nets.tests[2].layer[0].type == "ReLU" and list(nets.tests[4].state.stage) == ["n"]


def check_graph_solver_nets_without_tests() -> None:
    assert nets_of('train_net: "a"').tests == () and nets_of('net: "net"').tests == ()


def check_graph_solver_refusals() -> None:
    cases = (
        ("base_lr: 1", "names no net, expected exactly one of net, net_param, train_net, train_net_param"),
        ('net: "net" train_net: "a"', "the solver has net and train_net"),
        ('net: "net" test_iter: 1', "test_interval is 0, expected > 0"),
        ('train_net: "a" test_iter: 1 test_interval: 1', "1 test_iter, expected 0, one for each TEST net"),
        ('net: "net" test_net: ["a", "b"] test_iter: 1 test_interval: 1', "expected at least 2"),
        ('train_net: "a" test_net: "b" test_interval: 1', "0 test_iter, expected 1"),
        ('net: "net" test_iter: [1, 2] test_interval: 1 test_state {}', "1 test_state for 2 TEST nets"),
        ('net: "bad"', "bad:2:3: LayerParameter has no field named 'nmae'"),
    )
    for source, wanted in cases:
        message = refused(nets_of, source)
        assert wanted in message and message.startswith(("solver.prototxt: ", "bad:")), (source, message)


LENET = """
layer { name: "d" type: "Data" top: "data" top: "label" include { phase: TRAIN } phase: TRAIN
  transform_param { scale: 2 }
  data_param { source: "lmdb" batch_size: 5 backend: LMDB } }
layer { name: "py" type: "Python" bottom: "data" top: "p" python_param { module: "m" layer: "L" } }
layer { name: "ip" type: "InnerProduct" bottom: "p" top: "ip" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" softmax_param { axis: 2 }
  loss_param { ignore_label: 9 } }
layer { name: "acc" type: "Accuracy" bottom: "ip" bottom: "label" accuracy_param { axis: -1 } }
layer { name: "e" type: "EuclideanLoss" bottom: "ip" bottom: "label" }
layer { name: "other" type: "Accuracy" bottom: "ip" bottom: "p" }
"""


def check_graph_data_layers() -> None:
    (layer,) = graph.data_layers(net_of(LENET))
    assert (layer.name, layer.type, layer.data_top, layer.label_top) == ("d", "Data", "data", "label")
    assert (layer.source, layer.backend, layer.batch_size, layer.transform.scale) == ("lmdb", "LMDB", 5, 2)
    only = "layer { name: 'd' type: 'Data' top: 'x' data_param { source: 's' batch_size: 1 backend: LMDB } }"
    assert graph.data_layers(net_of(only))[0].label_top is None
    assert graph.data_layers(net_of(only.replace("backend: LMDB", "")))[0].backend == "LMDB", "V0 nets cannot say so"
    assert graph.data_layers(net_of('layer { type: "DummyData" top: "x" } layer { type: "Input" top: "y" }')) == ()


def check_graph_data_refusals() -> None:
    kinds = ("ImageData", "HDF5Data", "WindowData", "MemoryData", "CoSData")
    for kind in kinds:
        message = refused(graph.data_layers, net_of(f'layer {{ name: "d" type: "{kind}" top: "x" }}'))
        assert f"'d' of type '{kind}'" in message and "caffe-on-grid convert" in message
    data = 'layer { name: "d" type: "Data" %s data_param { %s } }'
    for tops, param, wanted in (
        ('top: "x"', 'source: "s" batch_size: 1 backend: LEVELDB', "backend LEVELDB is not"),
        ('top: "x"', "batch_size: 1 backend: LMDB", "no source"),
        ('top: "x"', 'source: "s" backend: LMDB', "no batch_size"),
        ("", 'source: "s" batch_size: 1 backend: LMDB', "0 tops"),
    ):
        assert wanted in refused(graph.data_layers, net_of(data % (tops, param)))


def check_graph_replace_data() -> None:
    net = graph.replace_data(net_of('name: "l"' + LENET), {"data": (5, 1, 2, 3), "label": (5,)})
    wanted = 'layer { name: "d" type: "Input" top: "data" top: "label" phase: TRAIN input_param { %s } }'
    assert (
        net.layer[0] == net_of(wanted % "shape { dim: [5, 1, 2, 3] } shape { dim: 5 }").layer[0]
        and len(net.layer) == 7
        and net.name == "l"
    )
    assert "no shape is known for its top 'label'" in refused(graph.replace_data, net_of(LENET), {"data": (1,)})


def check_graph_uses() -> None:
    net = net_of(LENET)
    assert graph.has_python_layer(net) == ["py"]
    assert graph.label_uses(net) == [
        graph.LabelUse("loss", "SoftmaxWithLoss", "label", "ip", 2, 9),
        graph.LabelUse("acc", "Accuracy", "label", "ip", -1, None),
    ]


NET_TEXT = """# net: "comment"
name: "mean.bin"
layer { name: "d" type: "Data" data_param { source: "lmdb" } transform_param { mean_file: 'mean.bin' } }
layers { name: "i" image_data_param { source: "list.txt" mean_file: "old.bin" root_folder: "" } }
layers { layer { type: "data" source: "v0" meanfile: "v0.bin" } }
layers { layer { source: "H0" type: "infogain_loss" } }
layer { infogain_loss_param { source: "H" } python_param { module: "my.layers" param_str: "x" } }
layer { annotated_data_param { label_map_file: "labels.txt" } memory_data_param { source: "hdfs:///x" } }
"""


def check_references_of_a_net() -> None:
    found = references.references(NET_TEXT, "net")
    assert [(r.value, r.role, r.line) for r in found] == [
        ("lmdb", "data", 3),
        ("mean.bin", "mean", 3),
        ("list.txt", "data", 4),
        ("old.bin", "mean", 4),
        ("v0", "data", 5),
        ("v0.bin", "mean", 5),
        ("H0", "source", 6),
        ("H", "source", 7),
        ("my.layers", "python", 7),
        ("labels.txt", "source", 8),
        ("hdfs:///x", "data", 8),
    ]
    assert found[0].field_path == "layer.data_param.source" and found[0].column == 53
    assert {r.role for r in found} <= set(references.ROLES)


def check_references_of_a_solver() -> None:
    source = 'net: "n"\ntest_net: ["a",\n"b"] weights: "w,v" train_net: "t" snapshot_prefix: "p" net_param { %s }'
    found = references.references(source % 'layer { transform_param { mean_file: "m" } }', "solver")
    assert [(r.value, r.role, r.line) for r in found] == [
        *(("n", "net", 1), ("a", "net", 2), ("b", "net", 3), ("w,v", "weights", 3), ("t", "net", 3), ("m", "mean", 3))
    ]
    assert "unknown kind" in refused(references.references, "", "job")
    assert "s.prototxt:1:4" in refused(references.references, "net", "solver", "s.prototxt")


def check_references_rewrite() -> None:
    renamed = {"mean.bin": 'files/"m".bin', "H": "h2", "x": "never"}
    rewritten = references.rewrite(NET_TEXT, renamed)
    assert rewritten == NET_TEXT.replace("'mean.bin'", '"files/\\"m\\".bin"').replace('"H"', '"h2"')
    assert references.rewrite("net: 'a' \"b\" # c\n", {"ab": "z"}) == 'net: "z" # c\n'
    assert references.rewrite(NET_TEXT, {}) == NET_TEXT
    assert [r.value for r in references.references(rewritten, "net")][1] == 'files/"m".bin'
