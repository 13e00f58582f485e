"""Sends the requests to HF in this process, from file to text, and makes the references."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from sooner.parity import end_ids, reference_run, until_end
from sooner.tasks.clip import prepare
from sooner.tasks.loading import ModelPair
from sooner.tasks.prompting import bos_options, written
from sooner.tasks.settings import CaptionSettings

from .requests import ServeQuestion
from .settings import ServeBenchSettings
from .traces import AnswerTrace, LoadTraces

Inputs = dict[str, Any]
PAGES = 64
"""Pages of the cache of HF's continuous batching; unset it takes more than half of the memory."""


class Direct:
    """A pair of models in this process, asked without a server.

    Its runs are loads as those of clients, whose answers come whole.

    Args:
        pair: the models.
        settings: of the bench.
        questions: the mix.
    """

    def __init__(
        self, pair: ModelPair, settings: ServeBenchSettings, questions: Sequence[ServeQuestion]
    ) -> None:
        self.pair, self.settings, self.questions = pair, settings, list(questions)
        self.model = pair.target.model

    def inputs(self, question: ServeQuestion) -> Inputs:
        """Return what the processor makes of a question."""
        if question.clip is not None:
            plain = CaptionSettings(method="plain", prompt=question.text)
            return prepare(question.clip, self.pair, plain).inputs
        message = {"role": "user", "content": question.text}
        text = written(self.pair.target.processor, [message])
        options = bos_options(self.pair.target.processor, text)
        ids = self.pair.target.tokenizer(text, **options)["input_ids"]
        ids = torch.tensor([ids]).to(self.model.device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def reference(self, question: ServeQuestion) -> tuple[list[int], list[Tensor]]:
        """Return the tokens of HF's own incremental decoding and their scores, with which every arm
        is compared."""
        tokens, scores = reference_run(
            self.model, self.inputs(question), max_new_tokens=question.max_tokens
        )
        return tokens[0], scores[0]

    def static(self, numbers: Sequence[int], rows: int) -> LoadTraces:
        """Answer questions with HF's `generate` over batches of `rows`, each as long as its longest
        answer."""
        batches = [numbers[first : first + rows] for first in range(0, len(numbers), rows)]
        return self._load(batches, self._batch)

    def continuous(self, numbers: Sequence[int], rows: int) -> LoadTraces:
        """Answer questions with HF's continuous batching, which takes ids alone.

        Raises:
            Exception: what it raises where it does not run.
        """
        return self._load([numbers], lambda questions: self._continuous(questions, rows))

    def _load(
        self,
        batches: Sequence[Sequence[int]],
        work: Callable[[Sequence[ServeQuestion]], list[list[int]]],
    ) -> LoadTraces:
        traces, began = [], time.perf_counter()
        for batch in batches:
            start = time.perf_counter() - began
            rows = work([self.questions[number] for number in batch])
            texts = [str(self.pair.target.tokenizer.decode(row)) for row in rows]
            end = time.perf_counter() - began
            traces += [
                AnswerTrace(
                    number, start, start, end, end, len(row), text, tuple(row), is_streamed=False
                )
                for number, row, text in zip(batch, rows, texts, strict=True)
            ]
        return LoadTraces(traces, 0, time.perf_counter() - began)

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
        return until_end(tokens[: question.max_tokens], end_ids(self.model))


def together(rows: Sequence[Inputs]) -> Inputs:
    """Return one batch of single rows, padded on the left; pixels of those that have any."""
    width = max(row["input_ids"].shape[1] for row in rows)
    made: Inputs = {
        name: torch.cat([pad(row[name], (width - row[name].shape[1], 0)) for row in rows])
        for name in ("input_ids", "attention_mask")  # each [rows, width]
    }
    seeing = [row for row in rows if any(name.startswith("pixel_values") for name in row)]
    for name in seeing[0] if seeing else ():
        if name not in made:
            made[name] = torch.cat([row[name] for row in seeing])
    return made
