"""Any causal model with one running position and full attention, by what it does itself."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from ..decoding.interface import Prompt
from ..errors import UnsupportedError
from .base import Adapter
from .packing import Packing
from .self_check import self_check
from .text import TextModel
from .unsuitable import unsuitable

logger = logging.getLogger("sooner")

CARRIED = {
    "inputs_embeds", "input_ids", "attention_mask", "position_ids", "past_key_values", "use_cache",
    "cache_position", "return_dict", "output_attentions", "output_hidden_states", "labels",
    "logits_to_keep",
}  # fmt: skip
"""Arguments of a decoder that say nothing of a prompt but its embeddings."""


class Generic(Adapter):
    """A model that no family here describes.

    What it must be: a `generate` of transformers' own, a decoder that takes `inputs_embeds`,
    `position_ids`, an additive 4-D `attention_mask` and a `Cache`, logits that are its head on the
    decoder's states. `unsuitable` says no by the config and the signatures. What these can't tell,
    `self_check` finds out: once on words, and once more on the first prompt that shows pictures. A
    model remembers that it passed, under the attention that it ran.

    Raises:
        UnsupportedError: the model is none of these; says what it has instead.
    """

    def __init__(self, model: Any) -> None:
        if (reason := unsuitable(model)) is not None:
            raise UnsupportedError(f"{type(model).__name__} {reason}")
        super().__init__(model)

    @property
    def body(self) -> Any:
        return self.model

    @property
    def visual_ids(self) -> tuple[int, ...]:
        names = ("image_token_index", "video_token_index")
        ids = [getattr(self.config, name, None) for name in names]
        return (*super().visual_ids, *(token for token in ids if isinstance(token, int)))

    def prove(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Compare with the model's own `generate`, unless that was done before.

        Args:
            inputs: prompts that show pictures; words by default.

        Raises:
            UnsupportedError: they differ.
        """
        what = "words" if inputs is None else "pictures"
        mark, attention = f"_sooner_{what}", self.text_config._attn_implementation
        if getattr(self.model, mark, None) == attention:
            return
        setattr(self.model, mark, attention)  # the check itself embeds these prompts
        try:
            self_check(self, inputs, brief=inputs is not None)
        except BaseException:
            delattr(self.model, mark)
            raise
        logger.warning(
            "model type '%s' has no adapter of its own; the generic one decodes it, and behind %s "
            "answered a tree of drafts as its generate() does",
            getattr(self.config, "model_type", type(self.model).__name__),
            what,
        )

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """As for every family; what the model brings to its decoder is looked at first.

        Raises:
            UnsupportedError: it brings more than embeddings in one line, seen backwards.
        """
        inputs = {name: value for name, value in inputs.items() if value is not None}
        if inputs.keys() - {"input_ids", "attention_mask"}:
            self.prove(inputs)
        return super().embed_prompt(inputs)

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)  # as `generate` does
        given = {**inputs, "position_ids": places} if "position_ids" not in inputs else inputs
        arguments = super().prompt_arguments(given)
        if (brought := self._unheard_of(arguments, given)) is not None:
            raise UnsupportedError(
                f"{type(self.model).__name__} hands its decoder {brought}, which the generic "
                "adapter can't carry on; write an adapter (docs/add-a-model.md)"
            )
        if arguments.get("inputs_embeds") is None:
            arguments["inputs_embeds"] = self.embedding(arguments["input_ids"])
        return arguments

    def _unheard_of(self, arguments: Mapping[str, Any], given: Mapping[str, Any]) -> str | None:
        """What is no mere embedding among a decoder's arguments."""
        more = sorted(name for name, value in arguments.items() if _says(name, value))
        if more:
            return ", ".join(more)
        places = arguments.get("position_ids")
        if places is not None and not _same(places, given["position_ids"]):
            return "positions of its own"
        mask = arguments.get("attention_mask")
        if mask is not None and not _same(mask, given["attention_mask"]):
            return "an attention mask of its own"
        return None

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        outputs = self.decoder(
            inputs_embeds=embeds, position_ids=positions, use_cache=True, **kwargs
        )
        return outputs[0]  # by name it is not everywhere there

    def _positions(self, given: Tensor | None, packed: Packing) -> Tensor:
        return super()._positions(None, packed)


class GenericText(Generic, TextModel):
    """The same without pixels, so that it may draft for a model that sees."""


def _says(name: str, value: Any) -> bool:
    """Whether an argument carries something that the steps behind the prompt would not see."""
    empty = value is None or value is False or (isinstance(value, dict) and not value)
    return name not in CARRIED and not empty


def _same(ours: Any, theirs: Tensor) -> bool:
    return isinstance(ours, Tensor) and ours.shape == theirs.shape and bool((ours == theirs).all())


def has_pixels(model: Any) -> bool:
    """Whether a model reads pictures, as its config tells."""
    return getattr(model.config, "vision_config", None) is not None or hasattr(
        model.config, "image_token_id"
    )


def generic(model: Any) -> Generic:
    """The generic adapter of a model, unchecked.

    Raises:
        UnsupportedError: its config or its signatures rule it out.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(model, GenerationMixin):
        raise UnsupportedError(f"{type(model).__name__} is no causal model of transformers")
    return (Generic if has_pixels(model) else GenericText)(model)
