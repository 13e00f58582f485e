"""`sooner.Engine` as the engine's thread wants it: an `EngineLike` over a loaded model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from ..decoding.loop import Decoding, OnTokens
from ..engine import Engine, Request
from ..errors import UnsupportedError
from ..methods import Method

NO_TOKEN = -1
"""A stop id that no token has; without any, `generate` takes those of the model's config."""


@dataclass(eq=False)
class CountedRequest(Request):
    """A request that knows its method, and what was drafted for it.

    Attributes:
        method: how it is drafted for.
        num_drafts: rounds with a draft of its row.
        num_draft_tokens: draft tokens that were verified.
        mode: `exact`, `relaxed` or `approximate`.
    """

    method: Method | None = field(default=None, repr=False)
    num_drafts: int = 0
    num_draft_tokens: int = 0
    mode: str = "exact"


class ModelEngine(Engine):
    """An engine that takes CPU tensors, a method and OpenAI's penalties a request, and counts.

    What it has more than `sooner.Engine` is what `JobOptions` may ask for.
    """

    def admit(
        self,
        inputs: Mapping[str, Any],
        *,
        seed: int | None = None,
        on_tokens: OnTokens | None = None,
        said: Sequence[int] = (),
        method: Method | None = None,
        presence_penalty: float = 0.0,
        frequency_penalty: float = 0.0,
        **options: Any,
    ) -> CountedRequest:
        """Queue a request; see `Engine.admit`.

        Args:
            said: tokens that it has committed before; there may be none yet.
            method: of the same class as the engine's, such as `HSD` with the request's own drafts.
            presence_penalty, frequency_penalty: as OpenAI's API has them.
        """
        if said:
            raise UnsupportedError(
                "a request that lost its row can't go on from its tokens; give pages for all rows"
            )
        device = self.model.get_input_embeddings().weight.device
        placed = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        if "eos_token_id" in options and not options["eos_token_id"]:
            options["eos_token_id"] = NO_TOKEN
        if presence_penalty or frequency_penalty:
            width = int(placed["input_ids"].shape[1])
            penalties = AnswerPenalties(width, presence_penalty, frequency_penalty)
            given = options.get("logits_processor") or []
            options["logits_processor"] = LogitsProcessorList([penalties, *given])
        request = CountedRequest(
            placed, {"seed": seed, "on_tokens": on_tokens, **options}, method=method
        )
        request.mode = (method or self.method).mode
        self.waiting.append(request)
        return request

    def step(self) -> list[Request]:
        """See `Engine.step`; counts the drafts of each request."""
        failed = self._prefill()
        batch = self.batch
        if batch is not None and batch.rows.active:
            active = list(batch.rows.active)
            batch.round()
            self._count(batch, active)
        return failed + self._collect()

    def _count(self, batch: Decoding, active: list[int]) -> None:
        tree = batch.tree
        if not tree.nodes:
            return
        sizes = tree.sizes.tolist() if tree.host_sizes is None else tree.host_sizes
        drafted = dict(zip(active, sizes, strict=True))
        for request in self.running:
            if isinstance(request, CountedRequest):
                size = drafted.get(request.first, 0)
                request.num_drafts += bool(size)
                request.num_draft_tokens += int(size)

    def _open(self, request: Request) -> tuple[Request, Decoding, Iterator[None]]:
        own = getattr(request, "method", None)
        if own is None:
            return super()._open(request)
        usual, self.method = self.method, own
        try:
            return super()._open(request)
        finally:
            self.method = usual


class AnswerPenalties(LogitsProcessor):
    """OpenAI's penalties: of each token that the answer has, once and for each time.

    Args:
        width: ids of the prompt, which are not counted.
        presence, frequency: taken from the score of a token that is there, and for each time.
    """

    def __init__(self, width: int, presence: float, frequency: float) -> None:
        self.width, self.presence, self.frequency = width, presence, frequency

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Scores of what follows `input_ids [rows, prompt and answer]`, `[rows, vocab]`."""
        answer = input_ids[:, self.width :]
        counts = torch.zeros_like(scores).scatter_add_(
            1, answer, torch.ones_like(answer, dtype=scores.dtype)
        )
        return scores - self.presence * (counts > 0) - self.frequency * counts
