"""Shapes of losses and of Accuracy: what of a label must fit the scores."""

from __future__ import annotations

from caffe_on_grid.proto.shapes_base import Given, Made, Rule, Shape, axis_of, count, legacy, need, shown

_SCALAR: Shape = ()


def _items(given: Given) -> None:
    """All losses: scores and labels have the same first axis."""
    first, second = given.bottoms[:2]
    fits = bool(first) and bool(second) and first[0] == second[0]
    need(fits, "bottoms 0 and 1 must have the same number of items (first axis)")


def _euclidean(given: Given) -> Made:
    legacy(given.first, 0)
    return _equal_counts(given)


def _equal_counts(given: Given) -> Made:
    """SigmoidCrossEntropyLoss, EuclideanLoss too."""
    _items(given)
    first, second = map(count, given.bottoms)
    need(first == second, f"bottoms 0 and 1 must hold as many values, and they hold {first} and {second}")
    return Made((_SCALAR,), buffers=first)


def _hinge(given: Given) -> Made:
    _items(given)
    legacy(given.first, 0)
    return Made((_SCALAR,))


def _multinomial(given: Given) -> Made:
    _items(given)
    legacy(given.first, 0)
    _flat(given, 1)
    return Made((_SCALAR,))


def _flat(given: Given, at: int, first: int = 1) -> None:
    """Refuse a bottom with more than one value along its axes from `first` on."""
    axes = legacy(given.bottoms[at], at)[first:]
    need(set(axes) == {1}, f"bottom {at} must have axes of 1 from the {('second', 'third')[first - 1]} on")


def _contrastive(given: Given) -> Made:
    pair = [legacy(shape, at) for at, shape in enumerate(given.bottoms[:2])]
    need(pair[0][1] == pair[1][1], "bottoms 0 and 1 must have the same number of channels")
    _flat(given, 0, 2)
    _flat(given, 1, 2)
    _flat(given, 2)
    _items(given)
    return Made((_SCALAR,), buffers=3 * count(given.first))


def _predictions(given: Given, axis: int) -> int:
    """Classes along `axis`; there must be a label for each of the other places."""
    scores, labels = given.bottoms[:2]
    at = axis_of(axis, scores)
    wanted, found = count(scores[:at]) * count(scores[at + 1 :]), count(labels)
    rule = f"there must be a label for each prediction: {wanted} (all axes of {shown(scores)} but {at}), not {found}"
    need(wanted == found, rule)
    return scores[at]


def _softmax_loss(given: Given) -> Made:
    _items(given)
    axis_of(given.layer.softmax_param.axis, given.first)
    _predictions(given, given.layer.softmax_param.axis)
    return Made(_with_scores(given), buffers=2 * count(given.first))


def _with_scores(given: Given) -> tuple[Shape, ...]:
    """The loss and, as a second top, the probabilities."""
    return (_SCALAR, given.first)[: max(1, given.tops)]


def _infogain(given: Given) -> Made:
    param = given.layer.infogain_loss_param
    need(len(given.bottoms) > 2 or param.HasField("source"), "the infogain matrix must be bottom 2 or named by source")
    need(not given.layer.loss_param.HasField("normalize"), "normalize is not for this type: use normalization")
    _items(given)
    classes = _predictions(given, param.axis)
    if len(given.bottoms) > 2:
        found = count(given.bottoms[2])
        need(found == classes**2, f"the infogain matrix must be {classes}x{classes}, and it holds {found} values")
    return Made(_with_scores(given), buffers=2 * count(given.first))


def _accuracy(given: Given) -> Made:
    param = given.layer.accuracy_param
    scores, labels = given.bottoms
    need(count(labels) > 0, "there must be labels")
    most = count(scores) // count(labels)
    need(param.top_k <= most, f"top_k {param.top_k} must be <= the number of classes, {most}")
    classes = _predictions(given, param.axis)
    return Made((_SCALAR, (classes,))[: given.tops])


RULES: dict[str, Rule] = {
    "Accuracy": Rule(_accuracy, (2, 2), (1, 2), backward=False),
    "ContrastiveLoss": Rule(_contrastive, (3, 3), loss=True),
    "EuclideanLoss": Rule(_euclidean, (2, 2), loss=True),
    "HingeLoss": Rule(_hinge, (2, 2), loss=True),
    "InfogainLoss": Rule(_infogain, (2, 3), (1, 2), loss=True),
    "MultinomialLogisticLoss": Rule(_multinomial, (2, 2), loss=True),
    "SigmoidCrossEntropyLoss": Rule(_equal_counts, (2, 2), loss=True),
    "SoftmaxWithLoss": Rule(_softmax_loss, (2, 2), (1, 2), loss=True),
}
