"""What every model family shares: embed a prompt as the family itself does, then run its decoder.

No modelling code is copied. The family's own forward embeds, encodes and positions the prompt, and
is stopped where it calls its decoder; the arguments of that call are the prompt.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from ..engine.cache import SlotCache, kv_shapes
from ..engine.grid import TokenGrid
from ..engine.interface import NEW, Prompt, cache_argument, max_positions
from ..errors import SoonerError, UnsupportedError
from .hooks import ForwardHooks

ATTENTION = ("sdpa", "eager")

FULL, SLIDING, CHUNKED = "full_attention", "sliding_attention", "chunked_attention"
"""Kinds of layers, as `layer_types` of a config names them, whose slots all stay in the cache."""

REFERENCE = "reference_sliding_attention"
"""Layers that see the prompt and a window behind it (`prompt_attention.py`)."""

STATES = frozenset({"conv", "linear_attention"})
"""Kinds of layers that keep a state in the place of slots, which takes chains (`recurrent.py`)."""


PROMPT_MASK = "prompt_mask"
"""Under this name a prompt's own masks travel to `decode`."""


def keeps_states(model: Any) -> bool:
    """Returns whether some layers of a model keep a state, as its config tells."""
    config: Any = getattr(model, "config", None)
    text = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else None
    return not STATES.isdisjoint(getattr(text, "layer_types", None) or ())


def is_sharded(model: Any) -> bool:
    """Returns whether transformers has split a model over processes by a `tp_plan`."""
    has_mesh = getattr(model, "_device_mesh", None) is not None
    return has_mesh and (getattr(model, "_tp_size", None) or 1) > 1


def refuse_ahead(what: str, model: Any) -> UnsupportedError:
    """Returns the error of something that takes it that no token sees those behind it."""
    return UnsupportedError(
        f"{what} knows no prompts that see ahead, as those of {type(model).__name__} do; leave it "
        "out"
    )


class Adapter:
    """How one model family embeds a prompt, numbers its positions and runs its decoder.

    Args:
        model: an HF model with a language-model head.

    Raises:
        UnsupportedError: the model's attention or cache can't hold token trees; says which.
    """

    model_types: ClassVar[tuple[str, ...]] = ()
    mrope: ClassVar[bool] = False
    speaks_prompt: ClassVar[bool] = True
    """Whether new tokens are numbered as the prompt's are."""
    kinds: ClassVar[frozenset[str]] = frozenset({FULL, SLIDING, CHUNKED})
    """Kinds of layers that can be decoded."""
    chains_only: ClassVar[bool] = False
    """Whether drafts have to be chains."""
    frame_kind: ClassVar[str | None] = None
    """As which media a video's frames are encoded, `video` or `image`, if their features depend on
    no other frame (or temporal group); see `vision.py`."""
    frames_end: ClassVar[int] = 0
    """Tokens that the encoder puts behind the last frame."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.decoder = self._find_decoder()
        self.head = model.get_output_embeddings()
        self.embedding = model.get_input_embeddings()
        self.config = model.config
        self.text_config: Any = self.config.get_text_config(decoder=True)
        # Looked up here: a step that is compiled may not look into signatures.
        self._cache_argument = cache_argument(self.decoder.forward)
        self._check_attention()

    def _find_decoder(self) -> Any:
        """Returns the module that runs the decoder's layers."""
        return self.model.get_decoder()

    def _check_attention(self) -> None:
        name = type(self.model).__name__
        implementation = self.text_config._attn_implementation
        # A context may have put its own function there, which keeps to this one in decoding.
        function = ALL_ATTENTION_FUNCTIONS.get(implementation)
        implementation = getattr(function, "original", implementation)
        if implementation not in ATTENTION:
            raise UnsupportedError(
                f"{name} runs attention '{implementation}', which takes no token-tree mask; load "
                f"it with attn_implementation='sdpa'"
            )
        kinds = set(getattr(self.text_config, "layer_types", None) or ())
        if other := sorted(kinds - self.kinds):
            raise UnsupportedError(
                f"{name} has {'/'.join(other)} layers, whose state can't be rolled back; it "
                "would take chains whose accepted tokens are replayed into it: decode it with its "
                "own generate()"
            )

    @property
    def body(self) -> Any:
        """The module whose forward embeds a prompt and calls the decoder."""
        return self.model.model

    @property
    def layers(self) -> int:
        return int(self.text_config.num_hidden_layers)

    @property
    def vocab_size(self) -> int:
        return int(self.text_config.vocab_size)

    @property
    def device(self) -> torch.device:
        """Where token ids go in; a sharded model may answer on another device."""
        return self.embedding.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embedding.weight.dtype

    @property
    def axes(self) -> int:
        """Returns the axes of a position in M-RoPE families."""
        return 3

    @property
    def takes_blocks(self) -> bool:
        """Whether the decoder's layers call the attention function that their config names, so
        that `attention` can take its place; else blocks are decoded with masks."""
        return bool(getattr(self.decoder, "_supports_attention_backend", False))

    @property
    def windows(self) -> dict[str, tuple[int | None, int | None]]:
        """Returns what the layers of each kind see: positions of a window, and those of a chunk.

        By the names of `layer_types`, or under "" where all layers are alike. Empty if every layer
        sees everything. Slots hold all tokens; who attends counts positions.
        """
        text = self.text_config
        kinds = getattr(text, "layer_types", None)
        window = getattr(text, "sliding_window", None)
        if not kinds:
            slides = window is not None and getattr(text, "use_sliding_window", True)
            return {"": (window, None)} if slides else {}
        if not {SLIDING, CHUNKED, REFERENCE} & set(kinds):
            return {}
        chunk = getattr(text, "attention_chunk_size", None)
        rules = {FULL: (None, None), CHUNKED: (None, chunk)}
        rules |= dict.fromkeys((SLIDING, REFERENCE), (window, None))
        return {kind: rules[kind] for kind in dict.fromkeys(kinds) if kind in rules}

    def require_plain_causal(self, what: str, prompt: Prompt | None = None) -> None:
        """Refuse what takes it that every token sees all before it and none behind.

        Args:
            what: the name of what asks.
            prompt: the one at hand, which may bring masks of its own.

        Raises:
            UnsupportedError: layers with windows or chunks, or a prompt that sees ahead.
        """
        if self.windows:
            raise UnsupportedError(
                f"{what} knows no windows or chunks, and {type(self.model).__name__} has layers "
                "with them; leave it out"
            )
        if prompt is not None and PROMPT_MASK in prompt.extras:
            raise refuse_ahead(what, self.model)

    @property
    def slot_bytes(self) -> int:
        """Returns the bytes of a token's keys and values in all layers."""
        shapes = kv_shapes(self.text_config)[: self.layers]
        return sum(heads * (key + value) for heads, key, value in shapes) * self.dtype.itemsize

    @property
    def max_positions(self) -> int | None:
        return max_positions(self.text_config)

    @property
    def visual_ids(self) -> tuple[int, ...]:
        """Returns placeholder token ids that stand for pixels."""
        names = ("image_token_id", "video_token_id")
        ids = [getattr(self.config, name, None) for name in names]
        return tuple(token for token in ids if token is not None)

    @property
    def grid(self) -> TokenGrid | None:
        """Layout of the pictures that this adapter generates; `None` where it generates text."""
        return None

    def guided_inputs(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the prompts, and behind them the same prompts without their condition.

        Raises:
            UnsupportedError: the family was not trained for classifier-free guidance.
        """
        raise UnsupportedError(
            f"{type(self.model).__name__} knows no unconditional prompt; use guidance=1"
        )

    def embed_prompt(self, inputs: Mapping[str, Any]) -> Prompt:
        """Embed and position a batch of prompts, packed so that padding sits at the end.

        Args:
            inputs: what the family's processor returns: `input_ids [rows, width]`, optionally
                `attention_mask`, and the pixels under the family's own names.

        Raises:
            SoonerError: placeholders and pixels do not match.
        """
        inputs = {**inputs, "attention_mask": padding_mask(inputs)}
        arguments, packed = self.prompt_arguments(inputs), Packing.of(inputs)
        positions = self._positions(arguments.get("position_ids"), packed)
        return Prompt(
            embeds=packed(arguments["inputs_embeds"]),
            positions=positions,
            lengths=packed.lengths,
            next_position=next_positions(positions, packed.lengths),
            visual=packed(self.is_visual(inputs)) & packed.inside,
            extras=self.prompt_extras(arguments, packed),
            frames=packed(self.video_frames(inputs)).masked_fill(~packed.inside, -1),
        )

    def video_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        """Returns the frame of each token of the padded prompt, `[rows, padded]`; see `Prompt`."""
        return torch.full_like(inputs["input_ids"], -1)

    def is_visual(self, inputs: Mapping[str, Any]) -> Tensor:
        """Returns which tokens of the padded prompt stand for pixels, `[rows, padded]` bool."""
        ids = inputs["input_ids"]
        return torch.isin(ids, torch.tensor(self.visual_ids, dtype=ids.dtype, device=ids.device))

    def visual_tokens(self, inputs: Mapping[str, Any]) -> Tensor:
        """Returns which tokens of the packed prompt stand for pixels, `[rows, width]` bool."""
        packed = Packing.of(inputs)
        return packed(self.is_visual(inputs)) & packed.inside

    def packed_frames(self, inputs: Mapping[str, Any]) -> Tensor:
        """Returns `video_frames` of the packed prompt, `[rows, width]`; -1 without a frame."""
        packed = Packing.of(inputs)
        return packed(self.video_frames(inputs)).masked_fill(~packed.inside, -1)

    def prune_prompt(self, prompt: Prompt, indices: list[Tensor]) -> Prompt:
        """Returns the prompt with only some of its visual tokens.

        Args:
            prompt: from `embed_prompt`.
            indices: for each row, ascending indices among its visual tokens.
        """
        sizes = torch.tensor(prompt.lengths, device=prompt.visual.device)
        keep = torch.arange(prompt.width, device=sizes.device)[None] < sizes[:, None]
        for row, row_indices in enumerate(indices):
            places = prompt.visual[row].nonzero()[:, 0]
            keep[row, places] = False
            keep[row, places[row_indices.to(places.device)]] = True
        packed = Packing(keep)
        embeds, visual = packed(prompt.embeds), packed(prompt.visual) & packed.inside
        positions = each_axis(prompt.positions, packed)
        next_position = prompt.next_position
        extras = self.prune_extras(prompt, keep, packed)
        self._check_extras(prompt, extras, "prune", "use a method that doesn't prune")
        frames = prompt.frames
        if frames is not None:
            frames = packed(frames).masked_fill(~packed.inside, -1)
        return Prompt(embeds, positions, packed.lengths, next_position, visual, extras, frames)

    def repeat_prompt(self, prompt: Prompt, copies: int) -> Prompt:
        """Returns each row `copies` times, side by side.

        Raises:
            UnsupportedError: the prompt has extras, and the family lacks `repeat_extras`.
        """
        frames = prompt.frames
        extras = self.repeat_extras(prompt, copies)
        self._check_extras(prompt, extras, "repeat", "leave num_return_sequences at 1")
        return Prompt(
            embeds=prompt.embeds.repeat_interleave(copies, 0),
            positions=prompt.positions.repeat_interleave(copies, -2),
            lengths=[length for length in prompt.lengths for _ in range(copies)],
            next_position=prompt.next_position.repeat_interleave(copies, -1),
            visual=prompt.visual.repeat_interleave(copies, 0),
            extras=extras,
            frames=None if frames is None else frames.repeat_interleave(copies, 0),
        )

    def repeat_extras(self, prompt: Prompt, copies: int) -> dict[str, Any]:
        """Returns the extras with each row `copies` times; families with extras override it."""
        return {}

    def prune_extras(self, prompt: Prompt, keep: Tensor, packed: Packing) -> dict[str, Any]:
        """Returns the prompt's extras for some of its tokens; families with extras override it.

        Args:
            keep: the tokens that stay, `[rows, width]` bool, in the prompt's own packing.
            packed: moves these tokens to the front of their rows.
        """
        return {}

    def may_split(self, prompt: Prompt) -> bool:
        """Returns whether the prompt can be prefilled in chunks."""
        try:
            self.cut_extras(prompt, 0, 1)
        except UnsupportedError:
            return False
        return True

    def cut_extras(self, prompt: Prompt, start: int, end: int) -> dict[str, Any]:
        """Returns the prompt's extras for its tokens `start` to `end` alone, padding included.

        Raises:
            UnsupportedError: the family can't prune its extras, which is the same thing.
        """
        keep = torch.zeros_like(prompt.visual)
        keep[:, start:end] = True
        extras = self.prune_extras(prompt, keep, Packing(keep))
        self._check_extras(prompt, extras, "split", "leave prefill_chunk_size unset")
        return extras

    def _check_extras(
        self, prompt: Prompt, extras: Mapping[str, Any], verb: str, way_out: str
    ) -> None:
        """Extras must not get lost: a prefill without them is another prompt's."""
        if extras.keys() != prompt.extras.keys():
            raise UnsupportedError(
                f"{type(self).__name__} can't {verb} {', '.join(sorted(prompt.extras))} of "
                f"{type(self.model).__name__}; {way_out}"
            )

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the decoder's arguments for the whole prompt, from the family's own forward."""
        try:
            return decoder_arguments(self.body, self.decoder, inputs)
        except ValueError as error:
            if "do not match" not in str(error):
                raise
            raise SoonerError(
                f"{type(self.model).__name__}: {error}; give this model its own processed inputs"
            ) from error

    def prompt_extras(self, arguments: dict[str, Any], packed: Packing) -> dict[str, Any]:
        """Returns further decoder arguments of the prefill, packed; most families have none.

        A family that returns some overrides `repeat_extras` and `prune_extras`, too.
        """
        return {}

    def _positions(self, position_ids: Tensor | None, packed: Packing) -> Tensor:
        line = torch.arange(packed.width, device=self.device).expand(packed.rows, -1)
        if not self.mrope:
            return line
        if position_ids is None:  # a prompt without pixels: every axis counts tokens
            return line.expand(self.axes, -1, -1)
        # Some versions put the text positions in front.
        return each_axis(position_ids[-self.axes :], packed)

    def open_cache(self, capacity: int) -> SlotCache:
        """Returns an empty cache of `capacity` slots a row."""
        return SlotCache(self.layers, capacity)

    def embed_tokens(self, tokens: Tensor) -> Tensor:
        """Embeds `[rows, entries]` as `[rows, entries, hidden]`."""
        return self.embedding(tokens)

    def step_extras(self, tokens: Tensor) -> dict[str, Any]:
        """Returns further decoder arguments of tokens behind a prompt, `[rows, entries]`."""
        return {}

    def decode(self, embeds: Tensor, positions: Tensor, **kwargs: Any) -> Tensor:
        """Run the decoder stack; `[rows, entries, hidden]` in and out."""
        outputs = self.decoder(
            inputs_embeds=embeds, position_ids=positions, use_cache=True, **self.named(kwargs)
        )
        return outputs.last_hidden_state

    def named(self, arguments: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
        """Returns arguments of a forward of the decoder, `cache` by the name that it has for it.

        Args:
            name: of another forward's, see `cache_argument`.
        """
        name = name or self._cache_argument
        return {name if key == NEW else key: value for key, value in arguments.items()}

    def logits(self, hidden: Tensor) -> Tensor:
        """Maps `[rows, entries, hidden]` to `[rows, entries, vocab]` on the token ids' device."""
        return self.head(hidden).to(self.device)


def complain(place: Path, fault: str, names: Sequence[str], way_out: str) -> None:
    """Refuses a checkpoint, unless it has no fault.

    Args:
        fault: such as `lacks`.
        names: of tensors or files that have it; the message holds the first four.
    """
    if names:
        more = f" and {len(names) - 4} more" if len(names) > 4 else ""
        raise SoonerError(
            f"'{place}' {fault} {', '.join(names[:4])}{more} ({len(names)} in all); {way_out}"
        )


def padding_mask(inputs: Mapping[str, Any]) -> Tensor:
    """Returns a processor's `attention_mask`, `[rows, padded]`; all ones where it returned none."""
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    return torch.ones_like(ids) if mask is None else mask.to(ids.device)


class TextModel(Adapter):
    """The adapter that runs decoder-only language models with 1-D RoPE."""

    model_types = ("qwen2", "llama")

    def prompt_arguments(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        return {"inputs_embeds": self.embedding(inputs["input_ids"])}


class Packing:
    """Moves the real tokens of padded rows to the front."""

    def __init__(self, mask: Tensor) -> None:
        self.lengths: list[int] = mask.sum(1).tolist()
        self.rows, self.padded = mask.shape
        self.width = max(self.lengths)
        order = torch.where(mask, 0, 1).argsort(dim=1, stable=True)
        self.order = order[:, : self.width]
        self.is_identity = bool(mask.all())
        sizes = torch.tensor(self.lengths, device=mask.device)
        self.inside = torch.arange(self.width, device=mask.device)[None] < sizes[:, None]

    @classmethod
    def of(cls, inputs: Mapping[str, Any]) -> Packing:
        """Returns the packing of a processor's output."""
        return cls(padding_mask(inputs).bool())

    def __call__(self, states: Tensor) -> Tensor:
        """`[rows, padded, ...]` to `[rows, width, ...]`."""
        if self.is_identity:
            return states
        rows = torch.arange(self.rows, device=states.device)[:, None]
        return states[rows, self.order.to(states.device)]

    def zeroed(self, states: Tensor) -> Tensor:
        """Returns `[rows, padded, ...]` as `[rows, width, ...]`, with zeros for padding."""
        moved = self(states)
        inside = self.inside.to(moved.device).view(*self.inside.shape, *[1] * (moved.ndim - 2))
        return moved.masked_fill(~inside, 0)


def next_positions(positions: Tensor, lengths: list[int]) -> Tensor:
    """One behind each row's last prompt token, axis by axis, as HF's `generate` goes on.

    It is not one behind the *largest*: a long video's time axis may be ahead of the text after it.
    """
    last = torch.tensor(lengths, device=positions.device) - 1
    rows = torch.arange(len(lengths), device=positions.device)
    return positions[..., rows, last] + 1


def each_axis(positions: Tensor, packed: Packing) -> Tensor:
    """Pack positions `[rows, width]`, or `[axes, rows, width]` axis by axis."""
    if positions.ndim == 2:
        return packed(positions)
    return torch.stack([packed(axis) for axis in positions])


class _DecoderCalledError(Exception):
    """Carries the decoder's arguments out of the family's forward."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        super().__init__("the prompt reached the decoder")
        self.arguments = arguments


def decoder_arguments(body: nn.Module, decoder: nn.Module, inputs: Mapping[str, Any]) -> dict:
    """Returns the keyword arguments that `body(**inputs)` would call `decoder` with.

    The hook answers only to this thread, so another one may decode with the same model meanwhile.
    """

    def stop(module: nn.Module, args: tuple, kwargs: dict[str, Any]) -> None:
        names = inspect.signature(module.forward).parameters  # for what comes without a name
        raise _DecoderCalledError({**dict(zip(names, args, strict=False)), **kwargs})

    with ForwardHooks() as hooks:
        hooks.before(decoder, stop)
        try:
            body(**inputs)
        except _DecoderCalledError as call:
            return call.arguments
    raise UnsupportedError(
        f"{type(body).__name__} never called its decoder with the inputs {sorted(inputs)}"
    )
