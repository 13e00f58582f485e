"""Sends the requests to a model in this process, from file to text: `sooner.generate`, HF in
batches.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sooner.generation import generate
from sooner.methods import Method
from sooner.parity import end_ids, reference_run, until_end
from sooner.tasks.clip import prepare
from sooner.tasks.loading import ModelPair
from sooner.tasks.prompting import written
from sooner.tasks.registry import build_method
from sooner.tasks.settings import CaptionSettings

from .requests import ServeQuestion
from .settings import ServeBenchSettings
from .traces import Block

Inputs = dict[str, Any]
PAGES = 64
"""Pages of the cache of HF's continuous batching; unset it takes more than half of the memory."""


@dataclass(frozen=True)
class DirectRun:
    """Some requests in this process.

    Attributes:
        tokens: of each.
        blocks: of those that were timed together, their tokens and seconds, from files to texts.
    """

    tokens: list[list[int]]
    blocks: list[Block]

    @property
    def seconds(self) -> float:
        return sum(seconds for _, seconds in self.blocks)


class Direct:
    """A pair of models in this process, asked without a server."""

    def __init__(self, pair: ModelPair, settings: ServeBenchSettings) -> None:
        self.pair, self.settings = pair, settings
        self.model = pair.target.model
        self._methods: dict[str, Method] = {}

    def inputs(self, question: ServeQuestion) -> Inputs:
        """What the processor makes of a question."""
        if question.clip is not None:
            plain = CaptionSettings(method="plain", prompt=question.text)
            return prepare(question.clip, self.pair, plain).inputs
        message = {"role": "user", "content": question.text}
        text = written(self.pair.target.processor, [message])
        ids = torch.tensor([self.pair.target.tokenizer(text)["input_ids"]]).to(self.model.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def reference(self, question: ServeQuestion) -> tuple[list[int], list[Tensor]]:
        """HF's own incremental decoding and its scores, what every arm is compared with."""
        tokens, scores = reference_run(
            self.model, self.inputs(question), max_new_tokens=question.max_tokens
        )
        return tokens[0], scores[0]

    def generate(self, arm: str, question: ServeQuestion) -> DirectRun:
        """`sooner.generate` by the method of an arm."""

        def work() -> list[list[int]]:
            inputs = self.inputs(question)
            limit = question.max_tokens
            made = generate(
                self.model, inputs, self._method(arm), max_new_tokens=limit, do_sample=False
            )
            return made.tokens

        return self._timed([work])

    def static(self, questions: Sequence[ServeQuestion], rows: int) -> DirectRun:
        """HF's `generate` over batches of `rows`, each as long as its longest answer."""
        batches = [questions[first : first + rows] for first in range(0, len(questions), rows)]
        return self._timed([partial(self._batch, batch) for batch in batches])

    def continuous(self, questions: Sequence[ServeQuestion], rows: int) -> DirectRun:
        """HF's continuous batching, which takes ids alone.

        Raises:
            Exception: what it raises where it does not run.
        """
        return self._timed([partial(self._continuous, questions, rows)])

    def _timed(self, works: Sequence[Callable[[], list[list[int]]]]) -> DirectRun:
        run = DirectRun([], [])
        for work in works:
            start = time.perf_counter()
            tokens = work()
            for row in tokens:
                self.pair.target.tokenizer.decode(row)
            seconds = time.perf_counter() - start
            run.tokens.extend(tokens)
            run.blocks.append((float(sum(map(len, tokens))), seconds))
        return run

    def _batch(self, questions: Sequence[ServeQuestion]) -> list[list[int]]:
        batch = together([self.inputs(question) for question in questions])
        longest = max(question.max_tokens for question in questions)
        output = self.model.generate(**batch, max_new_tokens=longest, do_sample=False)
        new = output[:, batch["input_ids"].shape[1] :].tolist()
        return [self._cut(row, question) for row, question in zip(new, questions, strict=True)]

    def _continuous(self, questions: Sequence[ServeQuestion], rows: int) -> list[list[int]]:
        from transformers import GenerationConfig
        from transformers.generation.configuration_utils import ContinuousBatchingConfig

        defaults = self.model.generation_config
        config = GenerationConfig(
            max_new_tokens=max(item.max_tokens for item in questions), do_sample=False,
            eos_token_id=defaults.eos_token_id, pad_token_id=defaults.pad_token_id,
        )  # fmt: skip
        ids = [self.inputs(item)["input_ids"][0].tolist() for item in questions]
        before = self.model.config._attn_implementation
        try:
            made = self.model.generate_batch(
                ids, generation_config=config,
                continuous_batching_config=ContinuousBatchingConfig(
                    num_blocks=PAGES, max_batch_tokens=512, max_requests_per_batch=rows
                ),
            )  # fmt: skip
        finally:
            self.model.set_attn_implementation(before)
        if len(made) < len(questions):
            raise RuntimeError(f"{len(made)} of {len(questions)} requests were answered")
        outputs = [list(item.generated_tokens) for item in made.values()]
        return [self._cut(row, item) for row, item in zip(outputs, questions, strict=True)]

    def _cut(self, tokens: list[int], question: ServeQuestion) -> list[int]:
        return until_end(tokens[: question.max_tokens], end_ids(self.model, {}))

    def _method(self, arm: str) -> Method:
        """Built once, as a server does: what it has learnt of acceptance stays."""
        if arm not in self._methods:
            options = CaptionSettings(
                method=arm, head=self.settings.head if arm == "eagle" else None
            )
            self._methods[arm] = build_method(options, self.pair)
        return self._methods[arm]


def together(rows: Sequence[Inputs]) -> Inputs:
    """One batch of single rows, padded on the left; pixels of those that have any."""
    width = max(row["input_ids"].shape[1] for row in rows)
    made: Inputs = {}
    for name in ("input_ids", "attention_mask"):
        made[name] = torch.cat([_widened(row[name], width) for row in rows])  # [rows, width]
    seeing = [row for row in rows if any(name.startswith("pixel_values") for name in row)]
    for name in seeing[0] if seeing else ():
        if name not in made:
            made[name] = torch.cat([row[name] for row in seeing])
    return made


def _widened(values: Tensor, width: int) -> Tensor:
    return pad(values, (width - values.shape[1], 0))
