"""Runs the arms of `sooner bench real`, and judges its goals."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList

import sooner
from sooner.engine.stats.run import APPROXIMATE, EXACT
from sooner.parity import compare, end_ids, until_end
from sooner.tasks.loading import ModelPair, load_pair

from .. import hf_arms
from ..goals import goal, worst
from ..run import Arm, ArmSamples, Data, Keep, Progress, Recorder, TimedRun, measure, quotient, row
from .outside import LlamaCpp, missing
from .settings import (
    COMPILED,
    DEFAULT,
    DRAFTED,
    FIXED,
    HF,
    ONE_ROW,
    OUTSIDE,
    TUNED_ON,
    RealSettings,
)
from .texts import WORKLOADS, Prompt

PLAIN_GATE, COPY_GATE, OVER_HF_GATE, PREDICTION_GATE = 0.97, 2.9, 1.4, 3.0
"""Least figures of the goals, fixed before any result."""
LOOKUP_TOKENS = 10
"""Draft tokens of transformers' prompt lookup, as its documentation has them."""


def run(settings: RealSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Measure and return the result: `arms`, a row for each workload, rows and arm."""
    pair = load_pair(settings.model, settings.draft, sees=False, device=settings.device,
                     dtype=settings.dtype)  # fmt: skip
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    recorder = Recorder("real", settings, goals, keep, model=pair.target.name, draft=settings.draft)
    recorder.origin(pair.target.device, pair.target.model.dtype, settings.seed)
    outside = [f"`{name}`" for name in settings.arms if name in OUTSIDE]
    if outside and (why := missing(settings.model)):
        recorder.result["missing"] = f"{', '.join(outside)}: {why}"
    rows: list[Data] = []
    for workload in settings.workloads:
        count = TUNED_ON + max(settings.prompts, *settings.rows)
        prompts = WORKLOADS[workload](count)[TUNED_ON:]
        for count in settings.rows:
            if len(prompts) < count:
                progress(f"{workload}: left out at rows {count}, as it has {len(prompts)} prompts")
                continue
            batches = [prompts[:count]] if count > 1 else [[each] for each in prompts]
            bench = RealBench(pair, batches[: settings.prompts], settings)
            progress(f"{workload}, rows {count}")
            measured = bench.measure(progress)
            rows += [
                {"workload": workload, "rows": count, **each}
                for each in bench.figures(measured, settings.seed)
            ]
            recorder.add(arms=rows)
    return recorder.result


class RealBench:
    """The arms on the prompts of one workload at one number of rows.

    Args:
        pair: the target, and the draft where there is one.
        batches: prompts that are decoded at once.
        settings: of the bench.
        methods: of arms that it does not know.
    """

    def __init__(
        self, pair: ModelPair, batches: list[list[Prompt]], settings: Any, methods: Any = None
    ) -> None:
        self.pair, self.settings, self.batches = pair, settings, batches
        self.methods: Mapping[str, sooner.Method] = methods or {}
        self.model, self.tokenizer = pair.target.model, pair.target.tokenizer
        self.rows = len(batches[0])
        self.inputs = [self._inputs(batch) for batch in batches]
        self._clocks: dict[str, LlamaCpp] = {}

    def measure(self, progress: Progress) -> list[ArmSamples]:
        """Time every arm that can run here, in turns, and compare its tokens with HF's."""
        arms = [
            Arm(name, partial(self._run, name), APPROXIMATE if name in OUTSIDE else EXACT)
            for name in dict.fromkeys((*self.settings.arms[:1], "hf", *self.settings.arms[1:]))
            if self._can_run(name)
        ]
        measured = measure(arms, len(self.batches), self.settings.repeats, progress)
        for index in range(len(self.batches)):
            expected, scores = self._reference(index)
            for arm in measured:
                arm.parity += [
                    compare(ids, tokens, scores[number])
                    for sample in arm.samples[index]
                    for number, (ids, tokens) in enumerate(
                        zip(expected, sample.tokens, strict=True)
                    )
                ]
        return measured

    def figures(self, measured: list[ArmSamples], seed: int) -> list[Data]:
        """Return the rows of arms, with the interval of their speed over plain decoding."""
        plain = measured[0]
        rows = []
        for arm in measured:
            figures = row(arm, plain)
            if not arm.is_red and len(self.batches) > 1:
                figures["over_plain"] = quotient(_rate(arm), _rate(plain), seed)
            if arm.arm.name in OUTSIDE:
                same = [parity.verdict == "identical" for parity in arm.parity]
                figures |= {"same_tokens": sum(same) / len(same), "divergences": []}
            rows.append(figures)
        return rows

    def _can_run(self, name: str) -> bool:
        if name == "prediction":
            return all(prompt.prediction for batch in self.batches for prompt in batch)
        if name in DRAFTED and self.pair.draft is None:
            return False
        if name in OUTSIDE:  # no schema binds it
            schemas = [prompt.schema for batch in self.batches for prompt in batch]
            return self.rows == 1 and not any(schemas) and missing(self.settings.model) is None
        return self.rows == 1 or name not in ONE_ROW

    def _inputs(self, batch: list[Prompt]) -> dict[str, Tensor]:
        """Return the ids of a batch, padded at the left."""
        return chat_inputs(self.model, self.tokenizer, [messages(prompt) for prompt in batch])

    def _options(self, index: int) -> dict[str, Any]:
        """Return what every arm decodes a batch with."""
        options: dict[str, Any] = {
            "max_new_tokens": self.settings.max_new_tokens,
            "do_sample": False,
        }
        schema = self.batches[index][0].schema
        if schema is not None:
            width = self.inputs[index]["input_ids"].shape[1]
            options["logits_processor"] = LogitsProcessorList(
                [SchemaProcessor(schema, self.tokenizer, self.model, width)]
            )
        return options

    def _run(self, name: str, index: int) -> TimedRun:
        inputs, options = self.inputs[index], self._options(index)
        if name in HF:
            return self._run_hf(name, inputs, options)
        if name in OUTSIDE:
            limit, ids = options["max_new_tokens"], inputs["input_ids"][0].tolist()
            return self._outside(name).run(ids, limit, end_ids(self.model))
        method, arrivals = self._method(name, index), []
        begin = time.perf_counter()
        made = sooner.generate(
            self.model, inputs, method, **options, compile=name == COMPILED,
            on_tokens=lambda row, tokens, drafted: arrivals.append(time.perf_counter()),
        )  # fmt: skip
        seconds, stats = time.perf_counter() - begin, made.stats
        return TimedRun(
            made.tokens, stats.decode_seconds, seconds, stats.decode_tokens, stats,
            arrivals[0] - begin,
        )  # fmt: skip

    def _outside(self, name: str) -> LlamaCpp:
        """Return llama.cpp with room for the longest prompt and its answer."""
        if name not in self._clocks:
            longest = max(inputs["input_ids"].shape[1] for inputs in self.inputs)
            context, threads = longest + self.settings.max_new_tokens, torch.get_num_threads()
            dtype = name.rpartition("-")[2]
            self._clocks[name] = LlamaCpp(self.settings.model, dtype, threads, context)
        return self._clocks[name]

    def _method(self, name: str, index: int) -> sooner.Method:
        """Return a new method, which has learnt nothing, or one that was given."""
        if name in self.methods:
            return self.methods[name]
        if name in ("plain", COMPILED):
            return sooner.Autoregressive()
        if name == "speculative":
            return sooner.Speculative(self.pair.draft.model)  # type: ignore[union-attr]
        if name == "prediction":
            return sooner.PromptLookup(predictions=[
                self.tokenizer(prompt.prediction, add_special_tokens=False)["input_ids"]
                for prompt in self.batches[index]
            ])  # fmt: skip
        length = name.removeprefix("prompt-lookup").removeprefix("-")
        return sooner.PromptLookup(int(length)) if length else sooner.PromptLookup()

    def _run_hf(self, name: str, inputs: dict[str, Tensor], options: dict[str, Any]) -> TimedRun:
        if name == "hf-prompt-lookup":
            options["prompt_lookup_num_tokens"] = LOOKUP_TOKENS
        if name == "hf-early-exit":
            options["assistant_early_exit"] = self.model.config.num_hidden_layers // 2
        if name == "hf-assisted":
            options["assistant_model"] = self.pair.draft.model  # type: ignore[union-attr]
        begin = time.perf_counter()
        if self.rows == 1:
            options.pop("do_sample")
            ticker = hf_arms.Ticker(self.model.device)
            tokens, decode_seconds, count = hf_arms.run(
                self.model, inputs, options.pop("max_new_tokens"), ticker, **options
            )
            seconds, rounds = time.perf_counter() - begin, len(ticker.arrivals) - 1
            return TimedRun([tokens], decode_seconds, seconds, count, rounds=rounds)
        output = self.model.generate(**inputs, **options)
        seconds = time.perf_counter() - begin
        begin = time.perf_counter()  # a streamer takes one row, so the prefill is timed by itself
        self.model.generate(**inputs, **{**options, "max_new_tokens": 1})
        prefill = time.perf_counter() - begin
        rows = self._new_tokens(output, inputs)
        count = sum(map(len, rows)) - len(rows)
        return TimedRun(rows, max(seconds - prefill, 0.0), seconds, count)

    def _reference(self, index: int) -> tuple[list[list[int]], list[list[Tensor]]]:
        """Return the tokens of HF's own `generate`, and the scores of each, for every row."""
        inputs = self.inputs[index]
        output = self.model.generate(
            **inputs, **self._options(index), output_scores=True, return_dict_in_generate=True
        )
        rows = self._new_tokens(output.sequences, inputs)
        return rows, [[scores[number] for scores in output.scores] for number in range(len(rows))]

    def _new_tokens(self, output: Tensor, inputs: dict[str, Tensor]) -> list[list[int]]:
        ends = end_ids(self.model)
        return [until_end(ids, ends) for ids in output[:, inputs["input_ids"].shape[1] :].tolist()]


def chat_inputs(
    model: Any, tokenizer: Any, chats: Sequence[list[dict[str, str]]]
) -> dict[str, Tensor]:
    """Return the ids of conversations that the model is to answer, padded at the left."""
    texts = [
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        for chat in chats
    ]
    options = {"padding": True, "padding_side": "left"} if len(texts) > 1 else {}
    made = tokenizer(texts, return_tensors="pt", add_special_tokens=False, **options)
    return {name: made[name].to(model.device) for name in ("input_ids", "attention_mask")}


def messages(prompt: Prompt) -> list[dict[str, str]]:
    """Return a prompt as a chat, the turns before it first."""
    turns = [
        each
        for text, answer in prompt.history
        for each in ({"role": "user", "content": text}, {"role": "assistant", "content": answer})
    ]
    return [*turns, {"role": "user", "content": prompt.text}]


class SchemaProcessor(LogitsProcessor):
    """Forbids tokens that would leave a JSON schema, with llguidance.

    Args:
        schema: of the answer.
        tokenizer: HF's, a fast one.
        model: whose scores are masked.
        width: of the prompt.

    Raises:
        SoonerError: llguidance is not installed.
    """

    def __init__(self, schema: dict[str, Any], tokenizer: Any, model: Any, width: int) -> None:
        try:
            import llguidance.hf
        except ImportError as error:
            raise sooner.SoonerError(
                "the workload json needs llguidance, which is not installed; pip install "
                "'sooner[serve]', or leave the workload out of --workloads"
            ) from error
        self.width, self.ends = width, set(end_ids(model))
        self._size = model.config.get_text_config().vocab_size
        tokens = llguidance.hf.from_tokenizer(
            tokenizer, n_vocab=self._size, eos_token=sorted(self.ends)
        )
        grammar = llguidance.LLMatcher.grammar_from_json_schema(schema)
        self._start = llguidance.LLMatcher(tokens, grammar)
        self._masks: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return scores `[rows, vocab]`, minus infinity where a token is forbidden."""
        masks = [self._mask(tuple(ids)) for ids in input_ids[:, self.width :].tolist()]
        return scores.masked_fill(~torch.stack(masks).to(scores.device), -torch.inf)

    def _mask(self, ids: tuple[int, ...]) -> Tensor:
        """Return which tokens may follow, `[vocab]` bool; any behind an end or a forbidden one."""
        if ids not in self._masks:
            mask = torch.ones(self._size, dtype=torch.bool)
            matcher = self._start.deep_copy()
            if not self.ends.intersection(ids) and matcher.try_consume_tokens(list(ids)) == len(
                ids
            ):
                packed = torch.frombuffer(bytearray(matcher.compute_bitmask()), dtype=torch.uint8)
                bits = (packed[:, None] >> torch.arange(8)) & 1  # [bytes, 8]
                mask = bits.flatten()[: self._size].bool()
            self._masks[ids] = mask
        return self._masks[ids]


def _rate(arm: ArmSamples) -> tuple[list[float], list[float]]:
    """Return tokens and seconds of decoding for each batch, the medians over repetitions."""
    inputs = [replace(arm, samples=[runs]) for runs in arm.samples]
    return [float(each.decode_tokens) for each in inputs], [each.decode_seconds for each in inputs]


def goals(result: Data) -> list[Data]:
    """Return a row for each goal whose arms were measured."""
    figures = {(each["workload"], each["rows"], each["method"]): each for each in result["arms"]}

    def speed(method: str, workload: str = "copy-edit", rows: int = 1) -> float | None:
        return figures.get((workload, rows, method), {}).get("decode_speedup")

    points = [
        (f"{method}, {workload}, rows {rows}", each["decode_speedup"])
        for (workload, rows, method), each in figures.items()
        if method in DEFAULT and each.get("decode_speedup")
    ]
    judged = worst("each arm by default over plain, every workload, ×", PLAIN_GATE, points)
    lookup, theirs = speed("prompt-lookup"), speed("hf-prompt-lookup")
    over_hf = lookup / theirs if lookup and theirs else None
    for name, bound, reached in (
        ("copy: prompt-lookup over plain, ×", COPY_GATE, speed("prompt-lookup", "copy")),
        ("copy-edit: prompt-lookup over plain, ×", COPY_GATE, lookup),
        ("copy-edit: prompt-lookup over hf-prompt-lookup, ×", OVER_HF_GATE, over_hf),
        ("copy-edit: prediction over plain, ×", PREDICTION_GATE, speed("prediction")),
    ):
        if reached is not None:
            judged.append(goal(name, bound, reached))
    return judged


def best_fixed(result: Data) -> list[Data]:
    """Return the fastest arm of a fixed length, for each workload and number of rows."""
    names = {f"prompt-lookup-{count}" for count in FIXED}
    arms = [each for each in result["arms"] if each["method"] in names and _speed(each)]
    best = {(each["workload"], each["rows"]): each for each in sorted(arms, key=_speed)}
    return list(best.values())


def _speed(figures: Data) -> float:
    return float(figures.get("decode_speedup") or 0.0)
