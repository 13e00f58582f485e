"""Drafts that never change a draw, so that a seed gives the same text under any load."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..engine.acceptance import follow_choices
from ..engine.loop import Session
from ..engine.noise import Purpose
from ..engine.sampling import SamplingParams
from ..engine.stats.run import EXACT
from ..methods import Method, PromptLookup, Speculative
from ..methods.chain_draft import ChainDrafter
from ..methods.prompt_lookup import LookupDrafter


@dataclass(frozen=True)
class Following(Method):
    """A method whose drafts are kept as far as they are what the target draws.

    How much is drafted depends on the load, and under rejection sampling the text depends on what
    is drafted. Here every draw belongs to the seed and the place in the text, as in plain decoding.
    A chain is drafted with the target's own random numbers, so that it tends to be what the target
    draws; still fewer drafts are kept than by rejection sampling. Greedy decoding is the same.

    Args:
        method: how to draft.
        prediction: what the rows of a run are expected to say, of a method that looks drafts up.
    """

    method: Method
    prediction: Sequence[int] = field(default=(), repr=False, compare=False)

    @property
    def takes_predictions(self) -> bool:
        """Whether drafts are looked up in a `prediction`, in a batch with rows that have none."""
        return isinstance(self.method, PromptLookup | Speculative) and self.mode == EXACT

    @property
    def mode(self) -> str:
        return self.method.mode

    @property
    def needs_whole_target(self) -> bool:
        return self.method.needs_whole_target

    @property
    def needs_whole_prompt(self) -> bool:
        return self.method.needs_whole_prompt

    @property
    def drafts_chains(self) -> bool:
        return self.method.drafts_chains

    def slot_bytes(self) -> int:
        return self.method.slot_bytes()

    def joins(self, other: Method) -> bool:
        return isinstance(other, Following) and self.method.joins(other.method)

    def largest_block(self) -> int:
        return self.method.largest_block()

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        self.method.expect(rows, waiting, max_rows)

    def session(
        self, model: Any, inputs: Mapping[str, Any], params: SamplingParams, **options: Any
    ) -> Session:
        session = self.method.session(model, inputs, params, **options)
        if self.mode == EXACT:
            session.rule = follow_choices
        if isinstance(session.drafter, ChainDrafter):
            session.drafter.purpose = Purpose.TOKEN
            session.drafter.looks_up = self.mode == EXACT
            session.drafter.prediction = self.prediction
        elif isinstance(session.drafter, LookupDrafter):
            session.drafter.predict(self.prediction)
        return session
