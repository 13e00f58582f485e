"""The generic adapter of models with convolutional or recurrent layers, which take chains alone."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any, ClassVar

from torch import Tensor

from ..engine.interface import NEW, Prompt
from ..errors import UnsupportedError
from .base import FULL, SLIDING, STATES
from .generic import Generic, GenericAxes, GenericText
from .states import StateCache, in_order


class Recurrent(Generic):
    """Adapts a model of which some layers keep a state in the place of keys and values.

    Its cache keeps the state behind every entry of a block until the block is committed
    (`states.StateCache`). A convolution hands over its inputs, of which any state is a part; a
    recurrent mixer is run token by token behind its prompt.

    Raises:
        UnsupportedError: as for `Generic`; several states a layer, or no layer with attention.
    """

    kinds: ClassVar[frozenset[str]] = frozenset({FULL, SLIDING, "moe", "mlp"} | STATES)
    chains_only: ClassVar[bool] = True

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        self._kinds: list[str] = list(self.text_config.layer_types)
        if (count := getattr(self.text_config, "number_of_conv_states", None) or 1) > 1:
            raise UnsupportedError(
                f"{type(model).__name__} keeps {count} states a layer, of which one is known; "
                "decode it with its own generate()"
            )
        if not {FULL, SLIDING} & set(self._kinds):
            raise UnsupportedError(
                f"{type(model).__name__} has no layer with attention, whose slots count its "
                "tokens; decode it with its own generate()"
            )
        for number, (kind, layer) in enumerate(zip(self._kinds, self.decoder.layers, strict=False)):
            for mixer in layer.children() if kind == "linear_attention" else ():
                _run_in_order(mixer, number)

    def open_cache(self, capacity: int) -> StateCache:
        return StateCache(self._kinds, capacity)

    @property
    def layers(self) -> int:
        """Returns layers with keys and values."""
        return sum(kind in (FULL, SLIDING) for kind in self._kinds)

    @property
    def takes_blocks(self) -> bool:
        """No: a step that is launched as a graph keeps no state behind each entry."""
        return False

    def require_plain_causal(self, what: str, prompt: Prompt | None = None) -> None:
        raise UnsupportedError(
            f"{what} takes tokens out of a prompt, and {type(self.model).__name__} has "
            f"{'/'.join(sorted(STATES & set(self._kinds)))} layers, whose state has seen them; "
            "leave it out"
        )

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        if isinstance(mask := kwargs.get("attention_mask"), dict):  # nothing hides from a state
            kwargs["attention_mask"] = {**dict.fromkeys(self._kinds), **mask}
        return super().decode(embeds, positions, **kwargs)


class RecurrentText(Recurrent, GenericText):
    """The adapter that takes no pixels."""


class RecurrentAxes(Recurrent, GenericAxes):
    """The adapter that has M-RoPE."""


def _run_in_order(mixer: Any, number: int) -> None:
    """Have a recurrent mixer's forward keep the state behind each entry, unless it does already."""
    forward = mixer.forward
    if getattr(forward, "func", None) is in_order:
        return
    parameters = inspect.signature(forward).parameters
    for name in ("cache_params", NEW):  # before transformers 5.24, and from then on
        if name in parameters:
            mixer.forward = partial(in_order, forward, number, name)
            return


RECURRENT: dict[type[Generic], type[Recurrent]] = {
    Generic: Recurrent, GenericText: RecurrentText, GenericAxes: RecurrentAxes,
}  # fmt: skip
"""Adapters of models that keep states, by those of models that keep none."""
