"""The model that a server serves, as the HTTP side knows it; and a prompt that is ready for it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .protocol import ChatRequest


@dataclass(frozen=True)
class Prepared:
    """Holds inputs of the model for one prompt.

    Attributes:
        inputs: what the processor returned: CPU tensors of one row, `input_ids [1, tokens]` among
            them.
        prompt_tokens: their number, placeholders of pixels included.
        media_keys: content hashes of pictures and videos, for caches.
        notes: what of the request was left out, for its client.
    """

    inputs: Mapping[str, Any] = field(repr=False)
    prompt_tokens: int
    media_keys: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


Prepare = Callable[[ChatRequest], Awaitable[Prepared]]
"""Messages and media to inputs; raises `BadRequestError(field, text)`."""


@dataclass(frozen=True)
class ServedModel:
    """What answers need to know of the model.

    Attributes:
        names: what clients may call it; the first is what it is told as.
        tokenizer: HF's, the target's.
        prepare: of chats.
        max_model_len: tokens that prompt and answer may have together.
        vocab_size: of the target's scores, which may be more than the tokenizer has.
        stop_token_ids: `eos_token_id` of `generation_config.json`, all of them.
        default_max_tokens: of answers that ask for no limit; by default what is left.
        response_template: how answers are parsed into content, reasoning and tool calls, as
            transformers' `parse_response` has it; by default the tokenizer's own.
        max_draft_tokens: that a round verifies at most.
        method, mode: how it decodes, for `GET /v1/models`.
        created: seconds since 1970.
        fingerprint: of what decides the text under a seed, as OpenAI's `system_fingerprint`.
    """

    names: tuple[str, ...]
    tokenizer: Any = field(repr=False)
    prepare: Prepare = field(repr=False)
    max_model_len: int
    vocab_size: int
    stop_token_ids: frozenset[int]
    default_max_tokens: int | None = None
    response_template: dict[str, Any] | None = field(default=None, repr=False)
    max_draft_tokens: int = 0
    method: str = "plain"
    mode: str = "exact"
    created: int = 0
    fingerprint: str | None = None

    @property
    def name(self) -> str:
        return self.names[0]
