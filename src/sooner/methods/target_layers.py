"""A target whose decoder also gives the states of some of its layers, for drafters that read them.

Layers are numbered as transformers' `hidden_states` are: `n` is what enters layer `n` (from 0),
with what is added between layers (DeepStack), and the last one is the decoder's output, its norm
included.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..engine.composition import refusal
from ..errors import SoonerError, UnsupportedError
from ..models.hooks import ForwardHooks
from .context import Context


class LayerStates:
    """An adapter that answers as the target's does, with wider states.

    `decode` gives `[rows, entries, (1 + layers) * hidden]`: the decoder's output, and behind it the
    states of each asked layer. Whoever runs blocks by it (a `ModelRunner`, its graphs) carries them
    along row by row, and so do `Outcome.hidden` and `Drafter.on_prefill`; `logits` reads the first
    part alone.

    Raises:
        SoonerError: a layer that the target does not have.
        UnsupportedError: a decoder without a list of layers.
    """

    def __init__(self, adapter: Any, layers: Sequence[int]) -> None:
        self.adapter, self.tap_layers = adapter, tuple(layers)
        for layer in self.tap_layers:
            if not 0 <= layer <= adapter.layers:
                raise SoonerError(
                    f"the drafter reads hidden_states[{layer}], but {type(adapter.model).__name__} "
                    f"has 0 to {adapter.layers}; give the target that it was trained for"
                )
        within = {layer for layer in self.tap_layers if layer < adapter.layers}
        modules = getattr(adapter.decoder, "layers", None) if within else ()
        if modules is None:
            raise UnsupportedError(
                f"the decoder of {type(adapter.model).__name__} has no list of layers to read "
                "states from; use a drafter that reads its output alone (eagle)"
            )
        self._modules = {layer: modules[layer] for layer in within}

    def __getattr__(self, name: str) -> Any:
        if name == "adapter":  # while a copy is being made
            raise AttributeError(name)
        return getattr(self.adapter, name)

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        """Run the decoder; states `[rows, entries, (1 + layers) * hidden]`.

        Raises:
            UnsupportedError: a prefill context took tokens out between the layers.
        """
        inputs: dict[int, Tensor] = {}  # of layers, in this thread alone

        def keep(layer: int, module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
            inputs[layer] = args[0] if args else kwargs["hidden_states"]

        with ForwardHooks() as hooks:
            for layer, module in self._modules.items():
                hooks.before(module, partial(keep, layer), first=True)
            hidden = self.adapter.decode(embeds, positions, **kwargs)
        states = [inputs.get(layer, hidden) for layer in self.tap_layers]
        for layer, state in zip(self.tap_layers, states, strict=True):
            if state.shape[1] != hidden.shape[1]:
                raise refusal(
                    "pruned", "tree of layer states",
                    width=hidden.shape[1], left=state.shape[1], layer=layer,
                )  # fmt: skip
        return torch.cat([hidden, *(state.to(hidden.device) for state in states)], -1)

    def logits(self, hidden: Tensor) -> Tensor:
        """Returns `[rows, entries, vocab]` of states with or without those of layers."""
        width = hidden.shape[-1] // (1 + len(self.tap_layers))
        return self.adapter.logits(hidden[..., :width])


def read_layers(context: Context, layers: Sequence[int]) -> None:
    """Let a run's target give the states of some layers, too.

    They are heard by hooks, which `torch.compile` can't trace: forwards are launched one by one, or
    recorded as graphs.

    Raises:
        SoonerError, UnsupportedError: as `LayerStates`.
    """
    states: Any = LayerStates(context.target, layers)  # whatever else is asked is the target's
    context.runner.adapter = states
    if context.graphs is not None and context.graphs.compiled is not None:
        context.graphs.compiled = None
        context.stats.note("not compiled: the drafter reads states between the target's layers")


def layer_states(hidden: Tensor, layers: int) -> Tensor:
    """Returns the states of the `layers` side by side, `[rows, entries, layers * hidden]`."""
    return hidden[..., hidden.shape[-1] // (1 + layers) :]
