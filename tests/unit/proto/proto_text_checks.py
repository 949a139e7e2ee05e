"""Schema and text."""

from __future__ import annotations

from proto_case import DATA, Net, Solver, net_of, refused

from caffe_on_grid.proto import schema, text, tree


def check_schema_defaults() -> None:
    layer, solver = schema.LayerParameter(), Solver()
    assert layer.convolution_param.axis == 1 and layer.pooling_param.stride == 1 and layer.convolution_param.bias_term
    assert layer.convolution_param.weight_filler.type == "constant" and layer.loss_param.normalization == 1
    assert abs(solver.delta - 1e-8) < 1e-15 and solver.type == "SGD" and solver.random_seed == -1
    assert solver.snapshot_format == schema.ENUMS["SolverParameter.SnapshotFormat"]["BINARYPROTO"]
    assert not solver.HasField("base_lr") and not layer.HasField("phase") and schema.NetState().phase == schema.TEST


def check_schema_wire_form() -> None:
    blob = schema.BlobProto(data=[1.0, 2.0])
    blob.shape.dim.extend([1, 2])
    assert blob.SerializeToString() == b"\x2a\x08\x00\x00\x80?\x00\x00\x00@\x3a\x04\x0a\x02\x01\x02"
    assert schema.Datum(float_data=[1.0]).SerializeToString() == b"\x35\x00\x00\x80?"
    assert schema.NetParameter.FromString(b"\xa2\x06\x03\x0a\x01x").layer[0].name == "x"


def check_schema_unknown_message() -> None:
    try:
        schema.message("NoSuchParameter")
    except KeyError:
        return
    raise AssertionError("a message that does not exist was found")


SPELLINGS = (
    ('name: "a" "b" \'c\'', 'name: "abc"'),
    ('layer: { name: "x" }', 'layer { name: "x" }'),
    ('layer < name: "x" >;', 'layer { name: "x" }'),
    ('layer [{name: "x"}, {}]', 'layer { name: "x" } layer { }'),
    ("input_dim: [1, 2] input_dim: []", "input_dim: 1, input_dim: 2;"),
    ("force_backward: t debug_info: 0", "force_backward: true debug_info: false"),
    ("input_dim: 0x10 input_dim: 010 input_dim: - 5", "input_dim: 16 input_dim: 8 input_dim: -5"),
    ("state { phase: 0 }", "state { phase: TRAIN }"),
    ("layer { loss_weight: .5f loss_weight: 1e2 loss_weight: 3 }", "layer { loss_weight: [0.5, 100, 3.] }"),
    ('# comment: {\nname: "#not"# end', 'name: "#not"'),
    (r'name: "\x41\102\n\"\u00e9"', 'name: "AB\\n\\"é"'),
)
REFUSED = (
    ("name", "net:1:5: expected ':' or '{' after 'name', got the end of the file"),
    ('layer {\n  nmae: "x"\n}', "net:2:3: LayerParameter has no field named 'nmae' (did you mean 'name'?)"),
    (
        "layer {\n  detection_output_param { }\n}",
        "net:2:3: LayerParameter has no field named 'detection_output_param' (a field of SSD Caffe",
    ),
    ('name: "a"\nname: "b"', "net:2:1: field 'name' is specified multiple times"),
    ("layer { pooling_param {} pooling_param {} }", "net:1:26: field 'pooling_param' is specified multiple times"),
    ("input_dim: 1e4", "net:1:12: field 'input_dim': expected an integer, got 1e4"),
    ("input_dim: 10.0", "expected an integer, got 10.0"),
    ("input_dim: 3000000000", "expected an integer from -2147483648 to 2147483647, got 3000000000"),
    (f"input_dim: {'9' * 5000}", "expected an integer, got 999"),
    ("layer { crop_param { offset: -1 } }", "expected an integer that is not negative"),
    ("force_backward: yes", "net:1:17: field 'force_backward': expected true or false, got yes"),
    ('force_backward: "true"', "expected true or false"),
    ("state { phase: train }", "expected one of TRAIN, TEST, got train (did you mean 'TRAIN'?)"),
    ("state { phase: 7 }", "expected one of TRAIN, TEST, got 7"),
    ("name: x", "net:1:7: field 'name': expected a string in quotes, got x"),
    ('name: "x', "net:1:7: the string is not closed on its line"),
    ('name: "\\q"', "unknown escape \\q in the string"),
    ("layer {\n\n", "net:3:1: expected '}' for the block opened in line 1, got the end of the file"),
    ("layer: 5", "net:1:8: field 'layer': expected a block { … }, got 5"),
    ("input_dim { }", "field 'input_dim': expected an integer, got a block"),
    ('name: ["a"]', "field 'name' takes one value, not a list"),
    ("}", "net:1:1: expected the name of a field, got '}'"),
    ("layer { ] }", "net:1:9: expected the name of a field, got ']'"),
    ("[caffe.x]: 1", "extensions"),
    ("input_dim: 10abc", "net:1:12: not a number: '10abc'"),
    ("input_dim: 1 @", "net:1:14: unexpected character '@'"),
    ("input_dim: [1 2]", "expected ',' or ']' in the list of 'input_dim', got '2'"),
    ("layer { clip_param { min: 1 } }", "net:1:9: clip_param (ClipParameter) lacks its required field 'max'"),
)


def check_text_spellings() -> None:
    for one, other in SPELLINGS:
        assert net_of(one) == net_of(other), one


def check_text_refusals() -> None:
    for source, wanted in REFUSED:
        message = refused(text.parse, Net, source, "net")
        assert wanted in message, (source, message)


def check_text_hostile() -> None:
    assert "nested deeper than 64" in refused(text.parse, Net, "a{" * 100_000, "net")
    assert "too large" in refused(text.parse, Net, " " * (tree.MAX_BYTES + 1), "net")
    assert "more than" in refused(text.fields, "a:1" + " a:1" * tree.MAX_ENTRIES)
    assert "is not closed" in refused(text.fields, 'a: "' + "\\x" * 500_000)
    assert "unexpected character" in refused(text.fields, "# x\n" * 100_000 + "\x00")


def check_text_unknown_is_ignored_on_request() -> None:
    source = 'foo { bar: [1, {}] } layer { name: "x" detection_output_param { top_k: 1 } }'
    assert text.parse(Net, source, "net", ignore_unknown=True) == net_of('layer { name: "x" }')
    assert "foo" in refused(text.parse, Net, source, "net")


def check_text_without_unknown_fields() -> None:
    """Each is named with its place, once; what is left keeps its place, and is what parsing with them ignored gives."""
    source = 'foo: [1,\n {}], # why\nlayer { name: "x"; bars: 2; bars: 3\n  multibox_loss_param { x: 1 }, type: "y" }\n'
    kept, lines = text.without_unknown(Net, source, "net")
    assert [line.split(" ")[0] for line in lines] == ["net:1:1:", "net:3:20:", "net:3:29:", "net:4:3:"]
    assert lines[0] == "net:1:1: NetParameter has no field named 'foo': left out"
    assert "SSD Caffe" in lines[3]
    assert len(kept) == len(source) and kept.count("\n") == source.count("\n")
    assert kept.index('type: "y"') == source.index('type: "y"')
    assert text.parse(Net, kept, "net") == text.parse(Net, source, "net", ignore_unknown=True) != Net()
    assert text.without_unknown(Net, kept, "net") == (kept, [])
    assert "expected an integer" in refused(text.without_unknown, Net, "foo: 1 input_dim: x", "net")


def check_text_renders_what_it_reads() -> None:
    for path in sorted(DATA.glob("*.prototxt")):
        kind = Solver if path.name.startswith("solver") else Net
        message = text.parse(kind, path.read_text(), path.name)
        assert text.parse(kind, text.render(message), "rendered") == message
    odd = Net(name='é "quoted" \\ \n\t')
    assert text.parse(Net, text.render(odd), "rendered") == odd


def check_text_fields() -> None:
    found = text.fields(
        'name: \'a\' "b"\nlayer {\n  data_param { source: "x y" batch_size: -3 }\n}\nlayer { }\ninput: ["p", "q"]'
    )
    assert [(f.path, f.value, f.line, f.column) for f in found] == [
        (("name",), "ab", 1, 7),
        (("layer", "data_param", "source"), "x y", 3, 24),
        (("layer", "data_param", "batch_size"), "-3", 3, 42),
        (("input",), "p", 6, 9),
        (("input",), "q", 6, 14),
    ]
    assert found[1].parent == found[2].parent != found[0].parent == found[3].parent


def check_text_large() -> None:
    layer = (
        'layer { name: "c%d" type: "Convolution" bottom: "b" top: "t" convolution_param { num_output: 6 pad: 3 } }\n'
    )
    source = "".join(layer % index for index in range(2000))
    assert len(net_of(source).layer) == 2000 and len(text.fields(source)) == 12000
