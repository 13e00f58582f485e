"""`sooner.Engine` as the engine's thread wants it, a job as arguments of its `add_request`, and the
method of a server, whose drafts never change a draw."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

from ..engine.acceptance import follow_choices
from ..engine.loop import Session
from ..engine.memory.media import count_media
from ..engine.noise import Purpose
from ..engine.request import Request
from ..engine.row_sampling import SamplingParams
from ..engine.scheduler import Engine
from ..engine.stats.run import EXACT
from ..methods import HSD, Method, PromptLookup, Speculative
from ..methods.aligned.prior import Experience
from ..methods.chain_draft import ChainDrafter
from ..methods.prompt_lookup import LookupDrafter
from .jobs import GenerationJob

if TYPE_CHECKING:
    from .openai.grammar import GuidanceMatcher

PREDICTED_NODES = 16
"""Draft tokens a round, at most, of a prediction in a server whose method looks nothing up."""
NO_TOKEN = -1
"""A stop id that no token has; without any, `generate` takes those of the model's config."""


class ModelEngine(Engine):
    """An engine that takes tensors of CPUs, and what `JobOptions` says of jobs."""

    def add_request(
        self, inputs: Mapping[str, Any], *, media_keys: Sequence[str] = (), **options: Any
    ) -> Request:
        """Adds a request; see `Engine.add_request`.

        Args:
            media_keys: as there, but of no use where a processor made another number of pictures of
                what it was given, such as tiles: the engine then takes hashes of the pixels.
        """
        keys = media_keys if len(media_keys) == count_media(inputs) else ()
        device = self.model.get_input_embeddings().weight.device
        placed = {
            name: value.to(device) if isinstance(value, Tensor) else value
            for name, value in inputs.items()
        }
        if "eos_token_id" in options and not options["eos_token_id"]:
            options["eos_token_id"] = NO_TOKEN
        return super().add_request(placed, media_keys=keys, **options)


class GrammarProcessor(LogitsProcessor):
    """Forbids every token that leaves a grammar, behind any draft of the answer.

    The grammar stands behind what is committed: whoever commits tokens has it accept them. Masks
    of a round are made once: those of a draft when its forbidden nodes are left out.

    Args:
        grammar: of one answer.
        generated: tells how many tokens of the answer it has accepted.
        width: ids of the prompt.
    """

    def __init__(self, grammar: GuidanceMatcher, generated: Callable[[], int], width: int) -> None:
        self.grammar, self.generated, self.width = grammar, generated, width
        self._masks: dict[tuple[int, ...], Tensor] = {}  # by what is drafted above, `[vocab]`
        self._place = 0  # tokens said when they were made

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns scores of what follows `input_ids [1, prompt and answer]`, `[1, vocab]`."""
        path = tuple(input_ids[0, self.width + self.generated() :].tolist())
        if path not in self._made():
            self.allowed(path, range(-1, len(path) - 1))
        return scores.masked_fill(~self._masks[path].to(scores.device), -torch.inf)

    def allowed(self, tokens: Sequence[int], parents: Sequence[int]) -> list[bool]:
        """Returns which nodes of a draft may stand there; see `methods.prompt_lookup`."""
        masks = self.grammar.masks(tokens, parents)
        paths: list[tuple[int, ...]] = [()]
        for token, parent in zip(tokens, parents, strict=True):
            paths.append((*paths[1 + parent], token))
        self._made().update(zip(paths, masks.masks, strict=True))
        return [bool(flag) for flag in masks.allowed]

    def _made(self) -> dict[tuple[int, ...], Tensor]:
        """Returns masks behind what is committed now."""
        if self._place != (count := self.generated()):
            self._place, self._masks = count, {}
        return self._masks


class AllowedTokens(LogitsProcessor):
    """Forbids every token but some.

    Args:
        tokens: ids that may be said.
    """

    def __init__(self, tokens: Collection[int]) -> None:
        self.tokens = torch.tensor(sorted(tokens))
        self._forbidden: Tensor | None = None  # `[vocab]` bool, on the device of the scores

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Returns scores `[rows, vocab]`, minus infinity where a token is forbidden."""
        if self._forbidden is None:
            forbidden = torch.ones(scores.shape[-1], dtype=torch.bool)
            forbidden[self.tokens] = False
            self._forbidden = forbidden.to(scores.device)
        return scores.masked_fill(self._forbidden, -torch.inf)


class JobOptions:
    """What `Engine.add_request` is told of a job, but for its inputs, seed and priority.

    A job's `prediction` is its draft, whatever the engine's method. Where that looks drafts up, it
    looks there, too; otherwise the job is decoded by `HSD`, in a batch of such jobs.

    Args:
        method: of the engine. Under `HSD` a job without a prediction decodes plainly.
        slots: tokens that a row's memory has, drafts included; `None` is any number.
    """

    def __init__(self, method: Method | None = None, slots: int | None = None) -> None:
        self.method, self.slots = method, slots
        self._experience = Experience()

    def __call__(self, job: GenerationJob) -> dict[str, Any]:
        """Returns options of one job."""
        options: dict[str, Any] = {
            "max_new_tokens": job.max_tokens,
            "eos_token_id": sorted(job.stop_token_ids) or None,
            "media_keys": job.media_keys,
            "arrived": job.arrived,
            **job.sampling,
        }
        if (method := self._method(job)) is not None:
            options["method"] = method
        if job.num_draft_tokens is not None:
            options["num_draft_tokens"] = job.num_draft_tokens
        processors = LogitsProcessorList()
        if job.allowed_token_ids:
            processors.append(AllowedTokens(job.allowed_token_ids))
        if job.grammar is not None:
            count = job.output.__len__
            processors.append(GrammarProcessor(job.grammar, count, job.prompt_tokens))
        if processors:
            options["logits_processor"] = processors
        return options

    def _method(self, job: GenerationJob) -> Method | None:
        """Returns how a job is decoded, where that depends on its prediction."""
        method, prediction = self.method, job.prediction
        if isinstance(method, HSD):
            return replace(method, drafts=[[prediction] if prediction else []])
        if not prediction:
            return None
        if isinstance(method, Following) and method.takes_predictions:
            return replace(method, prediction=prediction)
        nodes = PREDICTED_NODES
        if self.slots is not None:
            nodes = min(nodes, self.slots - job.prompt_tokens - job.max_tokens - 1)
        if nodes < 1:  # no room for a block
            return None
        return HSD(drafts=[[prediction]], max_nodes=nodes, experience=self._experience)


def sampling_options(temperature: float | None = None, **values: Any) -> dict[str, Any]:
    """Returns options of `Engine.add_request` for the sampling of a request.

    Args:
        temperature: 0 is greedy decoding, `None` what the model's `generation_config.json` says.
        values: such as `top_p`; what is `None` is left to the model's config, and what greedy
            decoding would ignore is left out.
    """
    options = {name: value for name, value in values.items() if value is not None}
    if temperature is None:
        return options
    if temperature == 0:
        for name in ("top_p", "top_k", "min_p"):
            options.pop(name, None)
        return {**options, "do_sample": False}
    return {**options, "do_sample": True, "temperature": float(temperature)}


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
