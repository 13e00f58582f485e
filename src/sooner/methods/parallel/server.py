"""The draft's side of parallel decoding: takes orders, drafts whenever it has none."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from ...decoding.interface import Adapter, Prompt
from ...decoding.sampling import Processing
from ..prompts import embed
from .board import Board
from .stream import DraftStream

Kept = Sequence[tuple[list[int], int]]
"""Of each row the kept ones among the target's visual tokens, and how many those are."""


class Orders(Protocol):
    """The receiving end of a queue of orders."""

    def poll(self, timeout: float = 0.0) -> bool: ...

    def recv(self) -> tuple: ...


@dataclass
class Job:
    """All that a worker needs for one run; see `DraftStream` and `prompts.embed`."""

    adapter: Any  # Adapter; `None` while a job travels to a process that has it
    inputs: Any  # Mapping[str, Any]; a `Parcel` while it travels
    processing: Processing
    prompt_ids: list[list[int]]
    vocab: int
    limit: int
    window: int
    seed: int
    repack: bool
    prompts: int = 1
    copies: int = 1
    chunk: int | None = None


class DraftServer:
    """Embeds the draft's prompt, prefills what is kept of it, then drafts ahead.

    Orders are `("prefill", kept)`, `("update", number, new tokens of each row)`,
    `("rows", active rows that stay)` and `("stop",)`.
    """

    def __init__(self, job: Job, board: Board) -> None:
        self.job = job
        self.board = board
        self.stream: DraftStream | None = None
        self.prompt: Prompt | None = None

    @torch.inference_mode()
    def serve(self, orders: Orders) -> None:
        """Work until told to stop. Between two forwards every waiting order is taken."""
        self.embed()
        while True:
            if self.is_idle or orders.poll():
                order = orders.recv()
                if order[0] == "stop":
                    return
                self.take(order)
            else:
                self.step()

    @property
    def is_idle(self) -> bool:
        return self.stream is None or not self.stream.wants_more

    def embed(self) -> None:
        """Encode the pixels; needs nothing from the target."""
        job = self.job
        self.prompt = embed(job.adapter, job.inputs, job.prompts, job.copies)

    def take(self, order: tuple) -> None:
        """Carry out one order."""
        kind, *details = order
        if kind == "prefill":
            self.prefill(*details)
        elif kind == "update":
            self.update(*details)
        elif kind == "rows":
            assert self.stream is not None
            self.stream.keep_rows(*details)

    def prefill(self, kept: Kept | None) -> None:
        """Prefill on the kept visual tokens, or on all of them."""
        job, prompt = self.job, self.prompt
        assert prompt is not None
        if kept is not None:
            prompt = pruned(job.adapter, prompt, kept, job.repack)
        generator = torch.Generator(device=job.adapter.device).manual_seed(job.seed)
        self.stream = DraftStream(
            job.adapter,
            prompt,
            job.processing,
            job.prompt_ids,
            job.vocab,
            job.limit,
            job.window,
            generator,
            job.chunk,
        )
        self.prompt = None

    def update(self, number: int, new: list[list[int]]) -> None:
        """Commit; rows whose draft was wrong are shown anew before the update is acknowledged."""
        stream = self.stream
        assert stream is not None
        before = [row.rollbacks for row in stream.rows]
        stream.update(new)
        for original, row, old in zip(stream.originals, stream.rows, before, strict=True):
            show = self.board.rewrite if row.rollbacks > old else self.board.show
            show(original, row.tokens)
        self.board.acknowledged = number

    def step(self) -> None:
        """Draft one token further and show it."""
        stream = self.stream
        assert stream is not None
        start = time.perf_counter_ns()
        grown, p = stream.step()
        for index, (original, row) in enumerate(zip(stream.originals, stream.rows, strict=True)):
            if not grown[index]:
                continue
            if p is not None:  # before the token, so that whoever sees the token finds it
                self.board.show_probs(original, len(row.tokens) - 1, p[index])
            self.board.show(original, row.tokens)
        self.board.count(1, time.perf_counter_ns() - start)


def pruned(adapter: Adapter, prompt: Prompt, kept: Kept, repack: bool) -> Prompt:
    """The draft's prompt with those visual tokens that stand for the target's kept ones."""
    counts = prompt.visual.sum(1).tolist()
    own = [
        translate(torch.tensor(indices, dtype=torch.long), total, have)
        for (indices, total), have in zip(kept, counts, strict=True)
    ]
    return adapter.prune_prompt(prompt, own, repack)


def translate(indices: Tensor, total: int, have: int) -> Tensor:
    """Indices among the target's `total` visual tokens as indices among the draft's `have`.

    Both see the same pictures in the same order, so a token's place is its share of the way.
    """
    if have == 0 or total in (0, have):  # a draft that only reads has none of them
        return indices[indices < have]
    return ((indices * have) // total).unique()
