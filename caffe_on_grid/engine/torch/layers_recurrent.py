"""LSTM, RNN and LSTMUnit, unrolled over the time axis, state carried from pass to pass."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

import torch
from torch.nn import functional

from caffe_on_grid.engine.torch import fillers
from caffe_on_grid.engine.torch.layers_base import Layer, Shape, Tops, count


class Recurrent(Layer):
    """Bottoms x (T, N, …), cont (T, N), [x_static (N, …)], [states (1, N, D) with expose_hidden]; top (T, N, D).

    Without expose_hidden the state at the end of a pass, values only, starts the next; where cont is 0 it is dropped.
    With it, no gradient passes the states either way, as in Caffe, which shares their data only.
    """

    bottoms = (2, None)
    tops = (1, None)
    states = 1
    """How many state blobs there are."""
    gates = 1
    """Rows of the input's weights, in units of num_output."""
    inner = 1
    """How many blobs, the last ones, each time step uses."""
    no_gradient = frozenset({1})
    not_forced = frozenset({1})

    def setup(self, shapes: Sequence[Shape]) -> None:
        """Weights of the input, of the static input, and the recurrent ones; T is fixed here."""
        self.p = self.spec.recurrent_param
        self.size = self.p.num_output
        self.check(self.size > 0, "num_output must be positive")
        self.exposed = self.states if self.p.expose_hidden else 0
        self.check(len(shapes[0]) >= 2, "bottom[0] must have at least 2 axes -- (#timesteps, #streams, ...)")
        self.check(len(self.spec.top) == 1 + self.exposed, f"needs {1 + self.exposed} tops")
        self.static = len(shapes) == 3 + self.exposed
        self.check(self.static or len(shapes) == 2 + self.exposed, f"{len(shapes)} bottoms do not fit")
        self.steps = shapes[0][0]
        rows = self.gates * self.size
        self.add_param((rows, count(shapes[0][2:])), self.p.weight_filler)
        self.add_param((rows,), self.p.bias_filler)
        if self.static:
            self.check(len(shapes[2]) >= 1, "x_static needs a batch axis")
            self.add_param((rows, count(shapes[2][1:])), self.p.weight_filler)
        self.recurrent_params()
        self.filled = list(self.params)
        """The blobs as this layer made them, before it came to share any."""
        self.state: Optional[tuple[torch.Tensor, ...]] = None

    def recurrent_params(self) -> None:
        """The further blobs, drawn from the stream as Caffe's unrolled net draws them, step by step."""
        raise NotImplementedError(self.type)

    @property
    def stale(self) -> bool:
        """Whether in Caffe, in TRAIN, the time steps after the first miss the recurrent weights that are shared."""
        pairs = list(zip(self.filled, self.params))[-self.inner :]
        return self.context.train and self.steps > 1 and any(own is not now for own, now in pairs)

    def _later(self) -> list[torch.Tensor]:
        """The weights of the time steps after the first: in strict mode those filled here, where Caffe keeps them."""
        if not (self.context.strict and self.stale):
            return self.weights
        every = zip(self.filled, self.params, self.weights)
        return [weight if own is now else own.data for own, now, weight in every]

    def discard(self, shape: Shape) -> None:
        """Draw a filler's values that Caffe throws away: those of a later time step, which shares its weights."""
        if not self.spec.blobs:
            fillers.fill(self.p.weight_filler, shape, self.context.stream)

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """(T, N, D), and a (1, N, D) for each exposed state."""
        x, cont = shapes[0], shapes[1]
        self.check(x[0] == self.steps, f"{x[0]} time steps, unrolled for {self.steps}")
        self.check(cont == x[:2], f"bottom[1] must have shape {x[:2]} -- (#timesteps, #streams), has {cont}")
        self.check(count(x[2:]) == self.params[0].shape[1], "input size differs from that of the weights")
        state = (1, x[1], self.size)
        for shape in shapes[len(shapes) - self.exposed :] if self.exposed else ():
            self.check(shape == state, f"state bottom must have shape {state}, has {shape}")
        self.streams = x[1]
        return [(self.steps, self.streams, self.size), *[state] * self.exposed]

    def forward(self, *bottoms: torch.Tensor) -> Tops:
        """Step by step, the input's part of all steps at once."""
        x, cont = bottoms[0], bottoms[1].detach()
        inputs = functional.linear(
            x.reshape(self.steps * self.streams, count(x.shape[2:])), self.weights[0], self.weights[1]
        )
        inputs = inputs.view(self.steps, self.streams, self.gates * self.size)
        if self.static:
            inputs = inputs + functional.linear(
                bottoms[2].reshape(self.streams, count(bottoms[2].shape[1:])), self.weights[2]
            )
        state = tuple(s.detach()[0] for s in bottoms[-self.exposed :]) if self.exposed else self._carried(x)
        outputs = []
        weights, later = self.weights, self._later()
        for step in range(self.steps):
            output, state = self.advance(inputs[step], cont[step][:, None], state, weights)
            outputs.append(output)
            weights = later
        self.state = tuple(s.detach() for s in state)
        top = torch.stack(outputs)
        return (top, *(s[None] for s in self.state)) if self.exposed else top

    def _carried(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The state of the last pass; zeros at first, or when the number of streams has changed."""
        if self.state is None or self.state[0].shape[0] != self.streams:
            return (x.new_zeros(self.streams, self.size),) * self.states
        return self.state

    def advance(
        self, z: torch.Tensor, cont: torch.Tensor, state: tuple[torch.Tensor, ...], weights: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """Output and new state of one step."""
        raise NotImplementedError(self.type)


def lstm_unit(z: torch.Tensor, cont: torch.Tensor, cell: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """New cell and hidden state from the gates i, f, o, g (N, 4D) and the previous cell."""
    size = cell.shape[-1]
    i, f, o = torch.sigmoid(z[..., : 3 * size]).split(size, -1)
    new = cont * f * cell + i * torch.tanh(z[..., 3 * size :])
    return new, o * torch.tanh(new)


class LSTM(Recurrent):
    """Blobs W_xc (4D, I), b_c (4D), [W_xc_static (4D, S)], W_hc (4D, D); states h, c."""

    states = 2
    gates = 4

    def recurrent_params(self) -> None:
        """W_hc is filled once for each time step; the first values stay."""
        shape = (4 * self.size, self.size)
        self.add_param(shape, self.p.weight_filler)
        for _ in range(self.steps - 1):
            self.discard(shape)

    def advance(
        self, z: torch.Tensor, cont: torch.Tensor, state: tuple[torch.Tensor, ...], weights: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The hidden state is the output."""
        hidden, cell = state
        cell, hidden = lstm_unit(torch.addmm(z, cont * hidden, weights[-1].t()), cont, cell)
        return hidden, (hidden, cell)


class RNN(Recurrent):
    """Blobs W_xh (D, I), b_h (D), [W_xh_static (D, S)], W_hh (D, D), W_ho (D, D), b_o (D); state h."""

    inner = 3

    def recurrent_params(self) -> None:
        """W_hh, W_ho and b_o are filled once for each time step; the first values stay."""
        shape = (self.size, self.size)
        self.add_param(shape, self.p.weight_filler)
        self.add_param(shape, self.p.weight_filler)
        self.add_param((self.size,), self.p.bias_filler)
        for _ in range(self.steps - 1):
            self.discard(shape)
            self.discard(shape)
            if not self.spec.blobs:
                fillers.fill(self.p.bias_filler, (self.size,), self.context.stream)

    def advance(
        self, z: torch.Tensor, cont: torch.Tensor, state: tuple[torch.Tensor, ...], weights: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, tuple[torch.Tensor, ...]]:
        """The output has weights of its own."""
        across, out, bias = weights[-3:]
        hidden = torch.tanh(torch.addmm(z, cont * state[0], across.t()))
        return torch.tanh(functional.linear(hidden, out, bias)), (hidden,)


class LSTMUnit(Layer):
    """One step: bottoms c_prev (1, N, D), gates (1, N, 4D), cont (1, N); tops c, h."""

    bottoms = (3, 3)
    tops = (2, 2)
    no_gradient = frozenset({2})
    not_forced = frozenset({2})

    def reshape(self, shapes: Sequence[Shape]) -> list[Shape]:
        """Shapes as above."""
        cell, gates, cont = shapes
        self.check(len(cell) == 3 and cell[0] == 1, f"c_prev must be (1, N, D), is {cell}")
        self.check(gates == (1, cell[1], 4 * cell[2]), f"gates must be {(1, cell[1], 4 * cell[2])}, are {gates}")
        self.check(cont == (1, cell[1]), f"cont must be {(1, cell[1])}, is {cont}")
        return [cell, cell]

    def forward(self, cell: torch.Tensor, z: torch.Tensor, cont: torch.Tensor) -> Tops:
        """As in LSTM."""
        return lstm_unit(z, cont.detach()[..., None], cell)
