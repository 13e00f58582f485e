"""The generic adapter of a model; of one whose positions have several axes (M-RoPE), too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from ..engine.interface import rope_parameters
from ..errors import UnsupportedError
from .base import Adapter, Packing
from .generic import Generic, GenericText, has_axes, has_pixels

AXES = 3
"""Time, height and width, where the config lists no `mrope_section`."""


class GenericAxes(Generic):
    """A model that no family here describes, with M-RoPE.

    Its own forward places a prompt, on as many axes as its `mrope_section` has. Behind the prompt
    every axis goes on by one a token from the prompt's last, as `generate` does; `self_check` finds
    it out where a model does otherwise.

    Raises:
        UnsupportedError: as for `Generic`.
    """

    mrope = True

    @property
    def axes(self) -> int:
        return len(rope_parameters(self.text_config).get("mrope_section") or ()) or AXES

    def placed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs without positions: the model's own forward computes them."""
        return {name: value for name, value in inputs.items() if name != "position_ids"}

    def _knows(self, places: Tensor, arguments: Mapping[str, Any]) -> bool:
        # Some versions put the text positions in front.
        fits = places.ndim == 3 and places.shape[0] in (self.axes, 1 + self.axes)
        return fits and places.shape[1:] == arguments["input_ids"].shape

    def _positions(self, position_ids: Tensor | None, packed: Packing) -> Tensor:
        positions = Adapter._positions(self, position_ids, packed)  # Generic's are of one axis
        if not positions.is_floating_point():
            return positions
        whole = positions.long()
        if bool(((positions != whole) & packed.inside).any()):
            raise UnsupportedError(
                f"{type(self.model).__name__} places this video between whole positions, which "
                "can't be carried on; sample its frames so that they lie whole positions apart"
            )
        return whole


def generic(model: Any) -> Generic:
    """Returns the generic adapter of a model, unchecked.

    Raises:
        UnsupportedError: its config or its signatures rule it out.
    """
    check_causal(model)
    if not has_pixels(model):
        return GenericText(model)
    if has_axes(model):
        return GenericAxes(model)
    return Generic(model)


def check_causal(model: Any) -> None:
    """Require a causal model of transformers.

    Raises:
        UnsupportedError: it is none.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(model, GenerationMixin):
        raise UnsupportedError(
            f"{type(model).__name__} is no causal model of transformers; "
            "it would take a decoding loop of its own"
        )
