"""The adapters of causal models without one of their own, checked against `generate`."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import Any, ClassVar

from torch import Tensor
from transformers import GenerationMixin, PreTrainedModel

from ..engine.interface import CACHE_NAMES, Prompt, cache_of, rope_parameters
from ..errors import UnsupportedError
from . import odd_ids
from .base import PROMPT_MASK, Adapter, Packing, TextModel, keeps_states
from .generic_check import self_check
from .odd_ids import EMBEDS, OddIds
from .prompt_masks import handed, masks_of, packed_masks, refuse_parts, sees_ahead
from .video import PER_LAYER, STACKS, TOKENWISE, DeepStack

DECODER = ("inputs_embeds", "position_ids", "attention_mask")
"""What a decoder has to take for a block of drafts, beside its cache."""


def unsuitable(model: Any, kinds: frozenset[str] = Adapter.kinds) -> str | None:
    """Returns why a model with layers of these kinds can't be decoded by the generic adapter, as a
    predicate; `None` if it may be."""
    config, text = model.config, model.config.get_text_config(decoder=True)
    if getattr(config, "is_encoder_decoder", False):
        return (
            "is an encoder and a decoder, not a causal model; it would take a decoding loop of "
            "its own"
        )
    if getattr(model, "_is_stateful", False) and not keeps_states(model):
        return f"keeps a state that can't be rolled back; it would take {REPLAY}"
    if others := set(getattr(text, "layer_types", None) or ()) - kinds:
        indexes = any("indexed" in kind or "sparse" in kind for kind in others)
        needs = "their index of keys would have to be kept and cut as slots are"
        needs = needs if indexes else f"their state can't be rolled back; it would take {REPLAY}"
        return f"has {'/'.join(sorted(others))} layers; {needs}"
    if has_axes(model) and not has_pixels(model):
        return "has positions of several axes (M-RoPE), and no pixels to place on them"
    return _signatures(model)


REPLAY = "chains whose accepted tokens are replayed into the state"


def has_axes(model: Any) -> bool:
    """Returns whether a model's positions have several axes (M-RoPE)."""
    bodies = (model, getattr(model, "model", None))
    text = model.config.get_text_config(decoder=True)
    return "mrope_section" in rope_parameters(text) or any(
        hasattr(body, "get_rope_index") for body in bodies
    )


def _signatures(model: Any) -> str | None:
    decoder = decoder_of(model)
    lacking = [name for name in DECODER if not _takes(decoder, name)]
    if not any(_takes(decoder, name) for name in CACHE_NAMES):
        lacking.append("cache")
    if lacking:
        return f"has a decoder that takes no {' and no '.join(lacking)}"
    if head_of(model) is None:
        return (
            "has no language-model head of its own; it would take an adapter (docs/add-a-model.md)"
        )
    return None


def decoder_of(model: Any) -> Any:
    """Returns the stack of a model's layers; some call the language model that has its head so."""
    decoder = model.get_decoder()
    head = getattr(decoder, "get_output_embeddings", lambda: None)()
    return decoder if head is None else getattr(decoder, "model", decoder)


def head_of(model: Any) -> Any:
    """Returns a model's head, which of some models the language model inside has."""
    head = model.get_output_embeddings()
    inner: Any = getattr(model, "language_model", None)
    if head is None and hasattr(inner, "get_output_embeddings"):
        return inner.get_output_embeddings()
    return head


def _takes(module: Any, name: str) -> bool:
    parameters = inspect.signature(module.forward).parameters
    wild = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    return wild or name in parameters


logger = logging.getLogger("sooner")

CARRIED = {
    "inputs_embeds", "input_ids", "attention_mask", "position_ids", *CACHE_NAMES, "use_cache",
    "cache_position", "return_dict", "output_attentions", "output_hidden_states", "labels",
    "logits_to_keep", *TOKENWISE, *STACKS,
}  # fmt: skip
"""Arguments of a decoder that say nothing of a prompt but its embeddings."""

AXES = 3
"""Axes of M-RoPE, time, height and width, where the config lists no `mrope_section`."""

WORDS = {"token_type_ids", "mm_token_type_ids"}
"""What processors say of words, too."""


class Generic(DeepStack):
    """A model that no family here describes.

    What it must be: a `generate` of transformers' own, a decoder that takes `inputs_embeds`,
    `position_ids`, an additive 4-D `attention_mask` and a `Cache`, logits that are its head on the
    decoder's states. `unsuitable` says no by the config and the signatures. What these can't tell,
    `self_check` finds out: once on words, and once more on the first prompt of each kind that shows
    pictures or videos. A model remembers that it passed, under the attention that it ran.

    Raises:
        UnsupportedError: the model is none of these; says what it has instead.
    """

    carried: ClassVar[frozenset[str]] = frozenset(CARRIED)
    """Arguments of the decoder that the steps behind a prompt, or its extras, account for."""

    def __init__(self, model: Any) -> None:
        if (reason := unsuitable(model, self.kinds)) is not None:
            raise UnsupportedError(f"{type(model).__name__} {reason}")
        super().__init__(model)
        self.head = head_of(model)
        self._scores = scores_of(model)
        self._odd: OddIds | None = None
        self._odd = odd_ids.read(self, getattr(model, odd_ids.KNOWN, []))

    def _find_decoder(self) -> Any:
        return decoder_of(self.model)

    @property
    def body(self) -> Any:
        return self.model

    @property
    def visual_ids(self) -> tuple[int, ...]:
        names = ("image_token_index", "video_token_index")
        ids = [getattr(self.config, name, None) for name in names]
        return (*super().visual_ids, *(token for token in ids if isinstance(token, int)))

    @property
    def max_positions(self) -> int | None:
        places = [super().max_positions, self._unscaled]
        return min((value for value in places if value is not None), default=None)

    @property
    def _unscaled(self) -> int | None:
        """Tokens up to which Llama 4 scales no query. It scales by an entry's number in the batch,
        which of a ragged block's is not its place."""
        text = self.text_config
        return text.floor_scale - 1 if getattr(text, "attn_temperature_tuning", None) else None

    @property
    def layers(self) -> int:
        """Returns layers with keys and values of their own; Gemma 3n and 4 share those of some."""
        return super().layers - (getattr(self.text_config, "num_kv_shared_layers", None) or 0)

    def prove(self, inputs: Mapping[str, Any] | None = None) -> None:
        """Compare with the model's own `generate`, unless that was done before.

        Args:
            inputs: prompts that show pictures; words by default.

        Raises:
            UnsupportedError: they differ.
        """
        kind = "_".join(sorted(inputs or ()))  # a video may be placed otherwise than a picture
        what = "pictures" if "pixel" in kind else "words"
        mark, attention = f"_sooner_{what}_{kind}", self.text_config._attn_implementation
        if getattr(self.model, mark, None) == attention:
            return
        setattr(self.model, mark, attention)  # the check itself embeds these prompts
        try:
            if not hasattr(self.model, odd_ids.KNOWN):
                setattr(self.model, odd_ids.KNOWN, odd_ids.find(self))
                self._odd = odd_ids.read(self, getattr(self.model, odd_ids.KNOWN))
            self_check(self, inputs, brief=inputs is not None)
        except BaseException:
            delattr(self.model, mark)
            raise
        logger.warning(
            "model type '%s' has no adapter of its own; the generic one decodes it, and behind %s "
            "answered a %s of drafts as its generate() does",
            getattr(self.config, "model_type", type(self.model).__name__),
            what,
            "chain" if self.chains_only else "tree",
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
        model_inputs = self.placed(inputs)
        arguments = super().prompt_arguments(model_inputs)
        if (brought := self._unheard_of(arguments, model_inputs)) is not None:
            raise UnsupportedError(
                f"{type(self.model).__name__} hands its decoder {brought}, which the generic "
                "adapter can't carry on; write an adapter (docs/add-a-model.md)"
            )
        if arguments.get("inputs_embeds") is None:
            arguments["inputs_embeds"] = self.embedding(arguments["input_ids"])
        return arguments

    def placed(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the inputs with positions as `generate` numbers them, unless they have some."""
        places = (inputs["attention_mask"].cumsum(-1) - 1).clamp(min=0)
        return {"position_ids": places, **inputs}

    def _unheard_of(self, arguments: Mapping[str, Any], inputs: Mapping[str, Any]) -> str | None:
        """Returns what is no mere embedding among a decoder's arguments."""
        names = [name for name, value in arguments.items() if _is_set(value)]
        if more := sorted({*names} - self.carried):
            return ", ".join(more)
        places = arguments.get("position_ids")
        if places is not None and not self._knows(places, inputs):
            return "positions of its own"
        mask, padding = arguments.get("attention_mask"), inputs["attention_mask"]
        if mask is None or _same(mask, padding) or masks_of(mask, *padding.shape) is not None:
            return None
        return "an attention mask of its own"

    def _knows(self, places: Tensor, arguments: Mapping[str, Any]) -> bool:
        """Returns whether positions that arrived at the decoder can be carried on."""
        return _same(places, arguments["position_ids"])

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        extras = super().prompt_extras(arguments, packed)
        mask = masks_of(arguments.get("attention_mask"), packed.rows, packed.padded)
        if mask and (self._sees_ahead or sees_ahead(mask, packed)):
            extras[PROMPT_MASK] = packed_masks(mask, packed)
        return extras

    @property
    def _sees_ahead(self) -> bool:
        """Whether the decoder sees ahead where no mask forbids it."""
        return getattr(self.text_config, "use_bidirectional_attention", None) in (True, "all")

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        extras = super().repeat_extras(prompt, copies)
        if PROMPT_MASK in prompt.extras:
            masks = prompt.extras[PROMPT_MASK].items()
            extras[PROMPT_MASK] = {kind: mask.repeat_interleave(copies, 0) for kind, mask in masks}
        return extras

    def prune_extras(self, prompt: Prompt, keep: Tensor, packed: Packing) -> dict[str, Any]:
        extras = super().prune_extras(prompt, keep, packed)
        if PROMPT_MASK in prompt.extras:
            extras[PROMPT_MASK] = packed_masks(prompt.extras[PROMPT_MASK], packed)
        return extras

    def cut_extras(self, prompt: Prompt, start: int, end: int) -> dict[str, Any]:
        if PROMPT_MASK in prompt.extras or self._sees_ahead:
            raise refuse_parts(self.model)
        return super().cut_extras(prompt, start, end)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        embeds = super().embed_tokens(tokens)
        return embeds if self._odd is None else self._odd.put(EMBEDS, tokens, embeds)

    def step_extras(self, tokens: Tensor) -> dict[str, Any]:
        if not getattr(self.text_config, "hidden_size_per_layer_input", None):
            return {}
        made = self._per_layer_inputs(tokens)
        return {PER_LAYER: made if self._odd is None else self._odd.put(PER_LAYER, tokens, made)}

    @cached_property
    def _per_layer_inputs(self) -> Callable[[Tensor], Tensor]:
        """What the layers read of tokens `[rows, entries]`, `[rows, entries, layers, size]`."""
        made: Callable[..., Tensor] = self.decoder.get_per_layer_inputs
        if "inputs_embeds" in inspect.signature(made).parameters:  # required in transformers 5.17
            return partial(made, inputs_embeds=None)
        return made

    def logits(self, hidden: Tensor) -> Tensor:
        return self._scores(super().logits(hidden))

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        if (masks := kwargs.pop(PROMPT_MASK, None)) is not None:
            kwargs["attention_mask"] = handed(masks)
        end, unscaled = cache_of(kwargs).get_seq_length() + embeds.shape[1], self._unscaled
        if unscaled is not None and end > unscaled:
            raise UnsupportedError(
                f"{type(self.model).__name__} scales queries from token {unscaled + 1} on by their "
                f"numbers in the batch, and this text has {end}; decode it with its own generate()"
            )
        outputs = self.decoder(
            inputs_embeds=embeds, position_ids=positions, use_cache=True, **self.named(kwargs)
        )
        return outputs[0]  # by name it is not everywhere there

    def _positions(self, position_ids: Tensor | None, packed: Packing) -> Tensor:
        return super()._positions(None, packed)


class GenericText(Generic, TextModel):
    """A generic adapter without pixels, so that it may draft for a model that sees.

    What its own forward takes beside words is refused, not dropped.
    """

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        names = inspect.signature(self.model.forward).parameters.keys() - CARRIED - WORDS
        if extra := sorted(name for name in names if _is_set(inputs.get(name))):
            raise UnsupportedError(
                f"{type(self.model).__name__} takes {', '.join(extra)}, which the generic adapter "
                "can't carry on; write an adapter (docs/add-a-model.md)"
            )
        ids = inputs["input_ids"]
        return {"inputs_embeds": self.embed_tokens(ids), **self.step_extras(ids)}


def _is_set(value: Any) -> bool:
    """Returns whether an argument carries something."""
    return not (value is None or value is False or (isinstance(value, dict) and not value))


def _same(ours: Any, other: Tensor) -> bool:
    return isinstance(ours, Tensor) and ours.shape == other.shape and bool((ours == other).all())


def has_pixels(model: Any) -> bool:
    """Returns whether a model reads pictures, as its config tells."""
    return getattr(model.config, "vision_config", None) is not None or hasattr(
        model.config, "image_token_id"
    )


def scores_of(model: Any) -> Callable[[Tensor], Tensor]:
    """Returns what maps the head's outputs to the model's logits, by what its own forward names.

    A config may hold a cap that its class does not apply, and the other way round, so the names
    are looked for in the source of the forward; `self_check` finds out where that is not enough.
    """
    text = model.config.get_text_config(decoder=True)
    try:
        source = inspect.getsource(type(model).forward)
    except (OSError, TypeError):
        return lambda logits: logits

    def named(name: str) -> float | None:
        value = getattr(text, name, getattr(model.config, name, None))
        return value if name in source and isinstance(value, int | float) else None

    times, over = named("output_multiplier") or named("logit_scale"), named("logits_scaling")
    cap = named("final_logit_softcapping")
    if times is over is cap is None:
        return lambda logits: logits

    def scores(logits: Tensor) -> Tensor:
        if times is not None:
            logits = logits * times
        if over is not None:
            logits = logits / over
        return logits if cap is None else (logits / cap).tanh() * cap

    return scores


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


def generic_type(model: Any) -> type[Generic]:
    """Returns the class of a model's generic adapter.

    Raises:
        UnsupportedError: it is no causal model of transformers.
    """
    if not isinstance(model, PreTrainedModel) or not isinstance(model, GenerationMixin):
        raise UnsupportedError(
            f"{type(model).__name__} is no causal model of transformers; "
            "it would take a decoding loop of its own"
        )
    if not has_pixels(model):
        return GenericText
    return GenericAxes if has_axes(model) else Generic
