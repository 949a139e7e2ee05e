"""Our feed against Caffe's own Data layer on the same LMDBs, bit for bit."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import data_layers_program
import numpy as np
import pytest
import records

from caffe_on_grid.data import transform
from caffe_on_grid.data.api import TransformPlan
from caffe_on_grid.proto import schema

pytestmark = pytest.mark.runtime

HEIGHT, WIDTH, COUNT, BATCH, BATCHES = 14, 17, 5, 3, 4
COLOUR = [records.pixels(seed, 3, HEIGHT, WIDTH) for seed in range(COUNT)]
GRAY = [records.pixels(seed, 1, HEIGHT, WIDTH) for seed in range(COUNT)]
VALUES = {
    "raw-colour": [records.raw(image, label) for label, image in enumerate(COLOUR)],
    "raw-gray": [records.raw(image, label) for label, image in enumerate(GRAY)],
    "floats": [records.floats(image / np.float32(7), label - 2) for label, image in enumerate(COLOUR)],
    "png-colour": [records.encoded(image, label, "png") for label, image in enumerate(COLOUR)],
    "png-gray": [records.encoded(image, label, "png") for label, image in enumerate(GRAY)],
    "jpg-colour": [records.encoded(image, label, "jpg") for label, image in enumerate(COLOUR)],
    "jpg-gray": [records.encoded(image, label, "jpg") for label, image in enumerate(GRAY)],
    "jpg-mixed": [records.encoded(image, label, "jpg") for label, image in enumerate(GRAY[:2] + COLOUR[2:])],
}
COMMON = {
    "plain": "",
    "scale": "scale: 0.00390625",
    "value": "mean_value: 103.939 scale: 0.017",
    "file": 'mean_file: "{mean}" scale: 0.3',
}
THREE = {"values": "mean_value: 103.939 mean_value: 116.779 mean_value: 123.68 scale: 1.7"}
FORCED = {"force-color": "force_color: true scale: 0.1", "force-gray": "force_gray: true mean_value: 7"}
CROPPED = {"crop": "crop_size: 8 scale: 0.1", "crop-file": 'crop_size: 9 mean_file: "{mean}"'}
RANDOM = {
    "mirror": "mirror: true",
    "crop": "crop_size: 11",
    "both": 'mirror: true crop_size: 12 mean_file: "{mean}" scale: 0.5',
}


def wanted() -> list[tuple[str, str, str, str]]:
    """(kind of record, name of the transform, transform, phase) of every case."""
    fixed = [(kind, *item, phase) for kind in VALUES for item in COMMON.items() for phase in ("TRAIN", "TEST")]
    three = [(kind, *item, "TRAIN") for kind in ("raw-colour", "floats", "jpg-colour") for item in THREE.items()]
    forced = [(kind, *item, "TRAIN") for kind in VALUES for item in FORCED.items() if kind[:3] in ("png", "jpg")]
    cropped = [(kind, *item, "TEST") for kind in ("raw-colour", "jpg-gray", "floats") for item in CROPPED.items()]
    chance = [
        (kind, f"random-{name}", how, "TRAIN") for kind in ("raw-colour", "png-gray") for name, how in RANDOM.items()
    ]
    chance.append(("raw-colour", "random-mirror", RANDOM["mirror"], "TEST"))
    every = [*fixed, *three, *forced, *cropped, *chance]
    return [case for case in every if case[0] != "jpg-mixed" or case[1].startswith("force")]


CASES = {f"{kind} {name} {phase}": (kind, how, phase) for kind, name, how, phase in wanted()}
EXACT = [name for name in CASES if "random" not in name]
CHANCE = [name for name in CASES if "random" in name]


def mean_file(path: Path, channels: int) -> str:
    blob = schema.BlobProto(num=1, channels=channels, height=HEIGHT, width=WIDTH)
    blob.data.extend(np.random.RandomState(channels).uniform(0, 255, channels * HEIGHT * WIDTH).tolist())
    path.write_bytes(blob.SerializeToString())
    return str(path)


@pytest.fixture(scope="module")
def cases(tmp_path_factory) -> list[dict]:
    folder = tmp_path_factory.mktemp("data-layer")
    means = {channels: mean_file(folder / f"mean{channels}", channels) for channels in (1, 3)}
    sources = {}
    for kind, values in VALUES.items():
        sources[kind] = records.write(folder / kind, {f"{i:08d}": value for i, value in enumerate(values)})
    return [
        {
            "name": name, "source": sources[kind], "phase": phase, "batch": BATCH, "batches": BATCHES, "seed": 5,
            "transform": how.replace("{mean}", means[1 if "gray" in kind else 3]),
        }
        for name, (kind, how, phase) in CASES.items()
    ]  # fmt: skip


@pytest.fixture(scope="module")
def batches(cases, tmp_path_factory, in_runtime):
    folder = tmp_path_factory.mktemp("batches")
    (folder / "cases.json").write_text(json.dumps(cases))
    in_runtime([data_layers_program.__file__, str(folder / "cases.json"), str(folder / "out.npz")])
    with np.load(folder / "out.npz") as found:
        return dict(found)


@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("top", ["data", "label"])
def test_the_feed_in_the_runtime_equals_caffes_data_layer(batches, name, top):
    expected = batches[f"{name}/caffe/{top}"]
    assert expected.std() > 0
    assert np.array_equal(batches[f"{name}/ours/{top}"], expected)


def test_the_feed_in_this_python_equals_caffes_data_layer(cases, batches):
    for case in cases:
        if case["name"] in EXACT:
            assert np.array_equal(data_layers_program.ours(case)["data"], batches[f"{case['name']}/caffe/data"]), case[
                "name"
            ]


def caffes_words(plan: TransformPlan, phase: str, seed: int) -> list[tuple[int, ...]]:
    """The words that Caffe's transformer draws for each sample: its generator is seeded by the second global draw."""
    own = np.random.MT19937()
    glob = np.random.MT19937()
    glob._legacy_seeding(seed)
    own._legacy_seeding(int(glob.random_raw(2)[1]))
    draws = int(plan.mirror) + 2 * (plan.crop > 0 and phase == "TRAIN")
    return [tuple(int(word) for word in own.random_raw(draws)) for _ in range(BATCH * BATCHES)]


def made(pixels: np.ndarray, plan: TransformPlan, phase: str, words: tuple[int, ...]) -> np.ndarray:
    out = np.empty(transform.top_shape(pixels.shape, plan), np.float32)
    transform.apply(pixels, plan, phase, words, out)
    return out


def sample_plan(case: dict) -> TransformPlan:
    from caffe_on_grid.proto import text

    message = text.parse(schema.TransformationParameter, case["transform"], "case")
    return transform.plan(message, lambda path: Path(path).read_bytes(), case["phase"])


@pytest.mark.parametrize("name", CHANCE)
def test_random_transforms_are_caffes_for_the_same_draws(cases, batches, name):
    case = next(case for case in cases if case["name"] == name)
    plan = sample_plan(case)
    images = COLOUR if "colour" in name else GRAY
    caffe = batches[f"{name}/caffe/data"].reshape(BATCH * BATCHES, *transform.top_shape(images[0].shape, plan))
    for place, words in enumerate(caffes_words(plan, case["phase"], 5)):
        assert np.array_equal(made(images[place % COUNT], plan, case["phase"], words), caffe[place])


@pytest.mark.parametrize("name", CHANCE)
@pytest.mark.parametrize("who", ["ours", "caffe"])
def test_each_output_is_one_of_the_possible_transforms(cases, batches, name, who):
    case = next(case for case in cases if case["name"] == name)
    plan = sample_plan(case)
    images = COLOUR if "colour" in name else GRAY
    mirrors = range(2) if plan.mirror else [None]
    rows, columns = (range(HEIGHT - plan.crop + 1), range(WIDTH - plan.crop + 1)) if plan.crop else ([None], [None])
    words = [tuple(word for word in one if word is not None) for one in itertools.product(mirrors, rows, columns)]
    seen = set()
    for place, sample in enumerate(batches[f"{name}/{who}/data"].reshape(BATCH * BATCHES, *plan_shape(plan, images))):
        image = images[place % COUNT]
        hits = [one for one in words if np.array_equal(made(image, plan, case["phase"], one), sample)]
        assert len(hits) == 1, place
        seen.update(hits)
    assert len(seen) > 1


def plan_shape(plan: TransformPlan, images: list[np.ndarray]) -> tuple[int, int, int]:
    return transform.top_shape(images[0].shape, plan)
