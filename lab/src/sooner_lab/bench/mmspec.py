"""`sooner bench mmspec`: every arm on the pictures and questions of MMSpec (Shen et al. 2026)."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import sooner
from sooner.errors import SoonerError
from sooner.tasks.loading import ModelPair, load_pair
from sooner.tasks.parse.model_inputs import room_for
from sooner.tasks.prompting import bos_options, on_device, written

from ..evaluation.documents.files import field_of, read_lines
from . import hf_arms
from .mmspec_settings import MMSpecSettings
from .real.run import RealBench
from .render import Columns, Page, Table
from .run import ArmSamples, Data, Keep, Progress, Recorder, quotient, row


@dataclass(frozen=True)
class Question:
    """A question: the name, topic and picture of a sample, and its `turns` up to this one."""

    sample: str
    topic: str
    picture: Path
    turns: tuple[str, ...]


def read_questions(folder: Path, count: int | None = None) -> list[Question]:
    """Return the questions of a split, by topic.

    Args:
        folder: with `mmspec.jsonl` and `images/`.
        count: first samples of each topic; `None` is all.

    Raises:
        SoonerError: a file is missing, or the layout is another.
    """
    table, questions, samples = folder / "mmspec.jsonl", list[Question](), Counter[str]()
    for place, record in read_lines(table) if table.is_file() else ():
        name, image, topic = (field_of(record, key, str, place) for key in ("id", "image", "topic"))
        turns, picture = field_of(record, "turns", list, place), folder / "images" / image
        if not turns or not all(isinstance(turn, str) for turn in turns):
            raise SoonerError(f"{place}: 'turns' is {turns}; it must list questions")
        if not picture.is_file():
            raise SoonerError(f"{place}: '{picture}' is missing; fetch images/ as a whole")
        samples[topic] += 1
        if count is None or samples[topic] <= count:
            turns_until = (tuple(turns[: number + 1]) for number in range(len(turns)))
            questions += [Question(name, topic, picture, each) for each in turns_until]
    if not questions:
        raise SoonerError(
            f"--data: '{folder}' has no mmspec.jsonl with samples; give a folder of a split, such "
            "as dataset/MMSpec/test in a clone of killthefullmoon/MMSpec"
        )
    return sorted(questions, key=lambda question: list(samples).index(question.topic))


def run(settings: MMSpecSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Measure and return the result: `arms`, a row for each topic and arm, those of all last."""
    questions = read_questions(settings.data, settings.samples)
    pair = load_pair(settings.model, settings.draft, device=settings.device, dtype=settings.dtype)
    if (draft := pair.draft) is not None:  # of the target's vocabulary, as HF's assistant has to be
        size = pair.target.model.config.get_text_config().vocab_size
        padded = hf_arms.with_vocabulary(draft.model, size)
        pair = replace(pair, draft=replace(draft, model=padded))
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    methods = {"drafter": sooner.load_drafter(settings.drafter)} if settings.drafter else {}
    name = settings.model or f"miniature:{pair.miniature}"
    recorder = Recorder("mmspec", settings, keep=keep, model=name)
    recorder.origin(pair.target.device, pair.target.model.dtype, settings.seed)
    rows, parts = list[Data](), list[list[ArmSamples]]()
    for topic, group in groupby(questions, lambda question: question.topic):
        progress(topic)
        bench = MMSpecBench(pair, chosen := list(group), settings, methods)
        parts.append(bench.measure(progress))
        rows += rows_of(topic, chosen, parts[-1], settings.seed)
        recorder.add(arms=rows)
    whole = [
        replace(arms[0], samples=[*chain(*(arm.samples for arm in arms))],
                parity=[*chain(*(arm.parity for arm in arms))])
        for arms in zip(*parts, strict=True)
    ]  # fmt: skip
    return recorder.add(arms=[*rows, *rows_of("all", questions, whole, settings.seed)])


class MMSpecBench(RealBench):
    """The arms on questions of a topic, one at a time; a draft gets the target's inputs."""

    def __init__(
        self, pair: ModelPair, questions: Sequence[Question], settings: Any, methods: Any
    ) -> None:
        self.pair, self.settings, self.methods, self.rows = pair, settings, methods, 1
        self.model, self.tokenizer = pair.target.model, pair.target.tokenizer
        self.batches: list[Any] = [[question] for question in questions]
        self.inputs: Any = LazyInputs(lambda index: self._prompt(questions[index]))
        self.answer = lru_cache(maxsize=8)(self._answer)

    def _prompt(self, question: Question) -> dict[str, Any]:
        """Return the inputs for a question, behind the turns before it and HF's answers."""
        processor, turns, system = self.pair.target.processor, question.turns, self.settings.system
        chat = [_message("system", system)] if system else []
        for number, text in enumerate(turns):
            if number:
                before = self.answer(replace(question, turns=turns[:number]))
                chat.append(_message("assistant", before))
            chat.append(_message("user", text, *([] if number else [{"type": "image"}])))
        with Image.open(question.picture) as picture:
            images = [[picture.convert("RGB")]]
        text = written(processor, chat)
        options = {"return_tensors": "pt", **bos_options(processor, text)}
        batch = processor(text=[text], images=images, **options)
        return on_device(batch, self.model)

    def _answer(self, question: Question) -> str:
        inputs = self._prompt(question)
        room = room_for(self.model, inputs, self.settings.max_new_tokens)
        ids, *_ = hf_arms.run(self.model, inputs, room)
        return str(self.tokenizer.decode(ids, skip_special_tokens=True)).strip()

    def _options(self, index: int) -> dict[str, Any]:
        room = room_for(self.model, self.inputs[index], self.settings.max_new_tokens)
        return {"max_new_tokens": room, "do_sample": False}

    def _can_run(self, name: str) -> bool:
        return (name != "drafter" or name in self.methods) and super()._can_run(name)


class LazyInputs:
    """Inputs by index, the last alone in memory: all pixels together would fill a GPU."""

    def __init__(self, make: Callable[[int], dict[str, Any]]) -> None:
        self._make = lru_cache(maxsize=1)(make)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self._make(index)


def _message(role: str, text: str, *parts: dict[str, str]) -> dict[str, Any]:
    return {"role": role, "content": [*parts, {"type": "text", "text": text}]}


def rows_of(
    topic: str, questions: Sequence[Question], measured: Sequence[ArmSamples], seed: int
) -> list[Data]:
    """Return the row of each arm on questions, plain decoding first.

    `mean_accepted_tokens` are tokens over forwards of the target, both behind the prefill;
    `walltime` and `over_plain` are tokens a second over plain decoding's, with the prefill and
    without. Each has a `value` and the `interval` of a bootstrap that draws whole samples.
    """
    names, owners = np.unique([each.sample for each in questions], return_inverse=True)
    plain, rows, even = _totals(measured[0], owners), list[Data](), [1.0] * len(names)
    for arm in measured:
        total = _totals(arm, owners)
        figures = {"topic": topic, "samples": len(names), "questions": len(questions)}
        figures |= row(arm, measured[0])
        figures["mean_accepted_tokens"] = quotient(total[2:4], (even, even), seed)
        if not arm.is_red:
            figures["walltime"] = quotient(total[:2], plain[:2], seed)
            figures["over_plain"] = quotient(total[2::2], plain[2::2], seed)
        rows.append(figures)
    return rows


def _totals(arm: ArmSamples, owners: np.ndarray) -> Any:
    """Return tokens, seconds, decoded tokens, their forwards and seconds, `[5][samples]`."""
    columns = [
        (each.tokens, each.e2e_seconds, each.decode_tokens, rounds, each.decode_seconds)
        for each in (replace(arm, samples=[runs]) for runs in arm.samples)
        for rounds in [each.stats[0].num_spec_steps if each.stats else each.samples[0][0].rounds]
    ]
    return [np.bincount(owners, column) for column in zip(*columns, strict=True)]


def _span(key: str, each: Data) -> str | None:
    span = (each.get(key) or {}).get("interval")
    return f"{span[0]:.2f} to {span[1]:.2f}" if span else None


COLUMNS: Columns = (
    ("topic", "topic", "{}"), ("method", "arm", "{}"), ("samples", "samples", "{}"),
    ("questions", "questions", "{}"), ("tokens", "tokens", "{}"), ("parity", "parity", "{}"),
    ("mean_accepted_tokens.value", "MAT", "{:.2f}"),
    (partial(_span, "mean_accepted_tokens"), "95 %", "{}"),
    ("walltime.value", "walltime", "{:.2f}×"), (partial(_span, "walltime"), "95 %", "{}"),
    ("over_plain.value", "decode", "{:.2f}×"), (partial(_span, "over_plain"), "95 %", "{}"),
)  # fmt: skip
REMARK = (
    "*MAT*: mean accepted tokens of a forward of the target behind the prefill, its bonus token "
    "included; *walltime*: tokens a second over plain decoding's, with the prefill; *decode*: "
    "without it. Intervals are a bootstrap over samples. Parity is against HF's `generate`, whose "
    "answers stand before further questions of a sample."
)
PAGE = Page("MMSpec", (Table(lambda result: result["model"], "arms", COLUMNS, REMARK),))
