"""Runs the arms of `sooner bench pages`, and judges its goals."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from functools import partial
from statistics import fmean
from typing import Any

import torch

import sooner
from sooner.engine.stats.run import EXACT, RELAXED, Stats
from sooner.generation import Generation
from sooner.methods import HSD, Method
from sooner.methods.aligned.alignment import Experience
from sooner.parity import Parity, compare, end_ids, reference_run
from sooner.tasks.loading import Loaded, load_pair
from sooner.tasks.parse.contexts import Ids, cut
from sooner.tasks.parse.decoding import RunawayWatch
from sooner.tasks.parse.settings import ParseSettings

from .. import hf_arms
from ..goals import goal
from ..hsd_arms import LiteralHSD
from ..real.run import chat_inputs, messages
from ..real.texts import Prompt
from ..run import Arm, ArmSamples, Data, Keep, Progress, Recorder, TimedRun, measure, quotient, row
from .readings import Reading, RegionReading, code_pages, pdf_pages
from .settings import THRESHOLDS, PagesSettings

TIMES, SPARE = 2, 16
"""New tokens of a region at most: so many times those of its draft, and so many more."""
ACCURACY_GATE, RUNAWAY_GATE, PREDICTED_GATE = 0.6, 0.2, 0.1
"""Least word accuracy of plain decoding, greatest share of runaways, and greatest difference of a
predicted speed from the measured one, as a share; fixed before any result."""


@dataclass(frozen=True)
class PageRun(TimedRun):
    """The output of an arm for a page; both stages count in its seconds.

    Attributes:
        regions: statistics of stage 1, a batch each.
        texts: of stage 1, by the place of their region.
    """

    regions: tuple[Stats, ...] = ()
    texts: dict[int, str] = field(default_factory=dict)


def run(settings: PagesSettings, progress: Progress = print, keep: Keep | None = None) -> Data:
    """Measure and return the result: `gate`, `arms`, `predictions` and a row for each page."""
    pair = load_pair(settings.model, None, sees=False, device=settings.device,
                     dtype=settings.dtype)  # fmt: skip
    torch.set_num_threads(settings.threads or os.cpu_count() or 1)
    recorder = Recorder("pages", settings, goals, keep, model=pair.target.name)
    recorder.origin(pair.target.device, pair.target.model.dtype, settings.seed)
    if settings.pdfs is not None:
        bench = PagesBench(pair.target, list(pdf_pages(settings.pdfs, settings.pages)), settings)
        recorder.add(gate=bench.gate(progress))
    bench = PagesBench(pair.target, list(code_pages(settings.functions)), settings)
    measured = bench.measure(progress)
    return recorder.add(**bench.figures(measured))


class PagesBench:
    """The arms on pages.

    Args:
        target: the model and its tokenizer.
        pages: what is read.
        settings: of the bench.
    """

    def __init__(self, target: Loaded, pages: Sequence[Reading], settings: PagesSettings) -> None:
        self.target, self.pages, self.settings = target, pages, settings
        self.model, self.tokenizer = target.model, target.tokenizer
        self.ends = end_ids(self.model)
        self.experiences: dict[str, Experience] = {}

    def measure(self, progress: Progress) -> list[ArmSamples]:
        """Time every arm on every page in turns, and compare exact ones with HF's tokens."""
        arms = [
            Arm(name, partial(self._run, name), RELAXED if name in THRESHOLDS else EXACT)
            for name in self.settings.arms
        ]
        measured = measure(arms, len(self.pages), self.settings.repeats, progress)
        for index in range(len(self.pages)):
            self._judge(measured, index)
        return measured

    def _judge(self, measured: Sequence[ArmSamples], index: int) -> None:
        """Compare every run of a page; scores are made only where tokens differ."""
        exact = [each for each in measured if each.arm.mode == EXACT]
        runs = [(each, run) for each in exact for run in each.samples[index]]
        if "hf" in self.settings.arms and all(run.tokens == runs[0][1].tokens for _, run in runs):
            for each, _ in runs:
                each.parity.append(Parity("identical"))
            return
        inputs = self._inputs(self.pages[index].ask, [self.pages[index].rough])
        tokens, scores = reference_run(
            self.model, inputs, max_new_tokens=self.settings.max_new_tokens
        )
        for each, run in runs:
            each.parity.append(compare(tokens[0], run.tokens[0], scores[0]))

    def _run(self, name: str, index: int) -> PageRun:
        page = self.pages[index]
        began = time.perf_counter()
        if name == "hf":
            inputs = self._inputs(page.ask, [page.rough])
            limit = self.settings.max_new_tokens
            tokens, seconds, count = hf_arms.run(self.model, inputs, limit)
            return PageRun([tokens], seconds, time.perf_counter() - began, count)
        stages, texts = self._regions(name, page)
        method, limit = self._method(name, page, texts), self.settings.max_new_tokens
        made = self._generate(page.ask, [page.rough], method, limit)
        spent = made.stats.decode_seconds + sum(each.decode_seconds for each in stages)
        return PageRun(
            made.tokens, spent, time.perf_counter() - began, made.stats.decode_tokens, made.stats,
            regions=stages, texts=texts,
        )  # fmt: skip

    def _regions(self, name: str, page: Reading) -> tuple[tuple[Stats, ...], dict[int, str]]:
        """Run stage 1 of an arm that has one: each region by itself, all in one batch."""
        places = [place for place, region in enumerate(page.regions) if _reads(name, region)]
        if not places:
            return (), {}
        rows = [page.regions[place] for place in places]
        drafts = [cut(self.tokenizer, [region.draft.strip("\n")]) for region in rows]
        limit = TIMES * max(len(row[0]) for row in drafts) + SPARE
        method = self._hsd(name, "regions", [[[*row[0], *self.ends[:1]]] for row in drafts])
        made = self._generate(page.ask, [region.rough for region in rows], method, limit)
        texts = {
            place: text
            for place, tokens in zip(places, made.tokens, strict=True)
            if (text := bare(self._text(tokens)))
        }
        return (made.stats,), texts

    def _method(self, name: str, page: Reading, texts: dict[int, str]) -> Method:
        """Return the method of stage 2; its drafts are stage 1's texts and the drafter's own."""
        if name == "plain":
            return sooner.Autoregressive()
        if name == "prompt-lookup":
            return sooner.PromptLookup()
        drafted = [region.draft for region in page.regions]
        read = [
            texts[place] + text[len(text.rstrip("\n")) :] if place in texts else text
            for place, text in enumerate(drafted)
        ]
        versions = [read] if name == "paper-literal" else [read, drafted]
        rows: list[list[Ids]] = [[] for _ in drafted]
        for version in versions:
            pieces = cut(self.tokenizer, version)
            pieces[-1] = [*pieces[-1], *self.ends[:1]]
            for ids, known in zip(pieces, rows, strict=True):
                if ids and ids not in known:
                    known.append(ids)
        return self._hsd(name, "page", [each for each in rows if each], is_page=True)

    def _hsd(self, name: str, stage: str, drafts: list[Any], is_page: bool = False) -> HSD:
        if name == "paper-literal":
            flat = [[ids for versions in drafts for ids in versions]] if is_page else drafts
            return LiteralHSD.unlimited(flat)
        return HSD(
            [drafts] if is_page else drafts,
            acceptance_threshold=THRESHOLDS.get(name, 1.0),
            experience=self.experiences.setdefault(f"{name}, {stage}", Experience()),
        )

    def _generate(self, ask: str, texts: Sequence[str], method: Method, limit: int) -> Generation:
        inputs = self._inputs(ask, texts)
        return sooner.generate(self.model, inputs, method, max_new_tokens=limit, do_sample=False)

    def _inputs(self, ask: str, texts: Sequence[str]) -> dict[str, Any]:
        """Return the ids of prompts about texts, padded at the left."""
        return chat_inputs(
            self.model, self.tokenizer, [messages(Prompt(ask + text)) for text in texts]
        )

    def figures(self, measured: Sequence[ArmSamples]) -> Data:
        """Return the parts of the result; speeds are of pages that don't run away."""
        pages = [self._page(measured, index) for index in range(len(self.pages))]
        sound = [index for index, page in enumerate(pages) if page["cut"] != "repetition"]
        kept = [replace(each, samples=[each.samples[at] for at in sound]) for each in measured]
        plain = kept[0]
        arms = []
        for each in kept if sound else []:
            figures = row(each, plain) | _stage_figures(each)
            if not each.is_red:
                figures["over_plain"] = quotient(_rate(each), _rate(plain), self.settings.seed)
            shown = [pages[at]["accuracy"][each.arm.name] for at in sound]
            figures["accuracy"] = fmean(shown)
            arms.append(figures)
        return {
            "code": _shares(pages, "plain"), "arms": arms, "predictions": predictions(kept),
            "page_rows": pages,
            "epsilon": {
                name: fmean(values)
                for name in ("rough", "draft", "regions")
                if (values := [pages[at]["epsilon"][name] for at in sound
                               if name in pages[at]["epsilon"]])
            },
        }  # fmt: skip

    def gate(self, progress: Progress) -> Data:
        """Return whether the model can read pages at all; nothing of this is timed."""
        pages = []
        for page in self.pages:
            progress(f"{page.source}, page {page.number}")
            limit = self.settings.max_new_tokens
            made = self._generate(page.ask, [page.rough], sooner.PromptLookup(), limit)
            pages.append(self._words(page, {"prompt-lookup": made.tokens[0]}))
        return _shares(pages, "prompt-lookup") | {"rows": pages}

    def _words(self, page: Reading, answers: dict[str, list[int]]) -> Data:
        """Return a page's row: accuracies of words, and why its first answer was cut."""
        from ...evaluation.metrics import word_accuracy

        first = next(iter(answers.values()))
        return {
            "source": page.source, "page": page.number, "tokens": len(first),
            "cut": self._cut(first), "rough_accuracy": word_accuracy(page.rough, page.truth),
            "accuracy": {
                name: word_accuracy(bare(self._text(tokens)), page.truth)
                for name, tokens in answers.items()
            },
        }  # fmt: skip

    def _page(self, measured: Sequence[ArmSamples], index: int) -> Data:
        page = self.pages[index]
        answers = {each.arm.name: each.samples[index][0].tokens[0] for each in measured}
        drafted = "".join(region.draft for region in page.regions)
        texts = {"rough": page.rough, "draft": drafted}
        reading = next(
            (each.samples[index][0] for each in measured if each.arm.name == "hsd"), None
        )
        if isinstance(reading, PageRun):
            texts["regions"] = "\n".join(text for _, text in sorted(reading.texts.items()))
        epsilon = {
            name: 1 - _share(cut(self.tokenizer, [text])[0], answers["plain"])
            for name, text in texts.items()
        }
        regions = len(page.regions)
        return self._words(page, answers) | {"regions": regions, "epsilon": epsilon}

    def _text(self, tokens: list[int]) -> str:
        return str(self.tokenizer.decode(tokens, skip_special_tokens=True))

    def _cut(self, tokens: list[int]) -> str:
        """Return why an answer did not come to its end; empty where it did."""
        watch = RunawayWatch(ParseSettings().repetition)
        if any(watch.add(token) for token in tokens):
            return "repetition"
        return "" if tokens and tokens[-1] in self.ends else "length"


def bare(text: str) -> str:
    """Return an answer without the code fence around it and what stands outside of that."""
    fenced = re.search(r"^```[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return (fenced[1] if fenced else text).strip("\n")


def _shares(pages: Sequence[Data], arm: str) -> Data:
    """Return means over pages: words right, of an arm and of its prompts, and how answers end."""
    return {
        "pages": len(pages),
        "accuracy": fmean(page["accuracy"][arm] for page in pages),
        "rough_accuracy": fmean(page["rough_accuracy"] for page in pages),
        "runaways": fmean(page["cut"] == "repetition" for page in pages),
        "cut": fmean(page["cut"] == "length" for page in pages),
    }


def _reads(name: str, region: RegionReading) -> bool:
    """Whether stage 1 of an arm reads a region."""
    if not region.rough or not region.draft.strip():
        return False
    if name == "hsd-unsure":
        return region.confidence <= ParseSettings().sure
    return name in ("hsd", "paper-literal", *THRESHOLDS)


def _share(text: Sequence[int], answer: Sequence[int]) -> float:
    """Return the share of an answer's tokens that stand in another text in the same order."""
    blocks = SequenceMatcher(None, text, answer, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / max(len(answer), 1)


def _rate(arm: ArmSamples) -> tuple[list[float], list[float]]:
    """Return tokens and seconds of each page, from the prepared readings to the last token."""
    inputs = [replace(arm, samples=[runs]) for runs in arm.samples]
    return [float(each.decode_tokens) for each in inputs], [each.e2e_seconds for each in inputs]


def _stage_figures(arm: ArmSamples) -> Data:
    """Return forwards of both stages and the share of the time that stage 1 takes."""
    runs = [run for runs in arm.samples for run in runs if isinstance(run, PageRun)]
    first = [stats for run in runs for stats in run.regions]
    if not first:
        return {}
    total = sum(run.e2e_seconds for run in runs)
    return {
        "region_forwards": sum(stats.nfe for stats in first) / len(runs),
        "region_share": sum(stats.total_seconds for stats in first) / total,
        "region_acceptance_length": fmean(stats.mean_acceptance_length for stats in first),
    }


def predictions(measured: Sequence[ArmSamples]) -> list[Data]:
    """Predict each arm's speed on the odd pages from the even ones, and compare.

    Of the even pages are rounds a token, seconds of a round's forward, and seconds of stage 1 a
    token of the page; the speed is that of plain decoding's forwards over their sum. The host's
    work between forwards is left out.
    """
    rows = []
    plain = measured[0]
    for arm in measured[1:]:
        if not arm.stats or arm.is_red or len(plain.samples) < 2:
            continue
        expected = _seconds_a_token(plain.samples[::2]) / _seconds_a_token(arm.samples[::2])
        speeds = [
            sum(run.decode_tokens for runs in each.samples[1::2] for run in runs)
            / sum(_spent(run) for runs in each.samples[1::2] for run in runs)
            for each in (arm, plain)
        ]
        reached = speeds[0] / speeds[1]
        rows.append({
            "method": arm.arm.name, "predicted": expected, "measured": reached,
            "difference": abs(expected / reached - 1),
        })  # fmt: skip
    return rows


def _spent(run: TimedRun) -> float:
    """Return seconds of decoding, and all of stage 1."""
    assert isinstance(run, PageRun)
    assert run.stats is not None
    return run.stats.decode_seconds + sum(each.total_seconds for each in run.regions)


def _seconds_a_token(samples: Sequence[Sequence[TimedRun]]) -> float:
    runs = [run for runs in samples for run in runs]
    rounds = [time for run in runs if run.stats for times in run.stats.verify_seconds.values()
              for time in times]  # fmt: skip
    regions = [stats for run in runs if isinstance(run, PageRun) for stats in run.regions]
    spent = sum(rounds) + sum(each.total_seconds for each in regions)
    return spent / sum(run.decode_tokens for run in runs)


def goals(result: Data) -> list[Data]:
    """Return a row for each goal."""
    judged = []
    if "gate" in result:
        gate = result["gate"]
        judged += [
            goal("words of pages of PDFs that are right", ACCURACY_GATE, gate["accuracy"]),
            goal("runaways among them", RUNAWAY_GATE, gate["runaways"], is_upper=True),
        ]
    if "arms" not in result:
        return judged
    arms = {each["method"]: each for each in result["arms"]}
    if {"hsd-page", "prompt-lookup"} <= arms.keys():
        speeds = [arms[name].get("e2e_speedup") for name in ("hsd-page", "prompt-lookup")]
        if all(speeds):
            judged.append(goal("hsd-page over prompt-lookup, ×", 1.0, speeds[0] / speeds[1]))
    if {"hsd-page", "hsd"} <= arms.keys():
        speed = arms["hsd"].get("e2e_speedup"), arms["hsd-page"].get("e2e_speedup")
        if all(speed):
            judged.append(goal("hsd over hsd-page, ×", 1.0, speed[0] / speed[1]))
    if result["predictions"]:
        worst = max(result["predictions"], key=lambda each: each["difference"])
        name, figure = "predicted speed against measured, difference", worst["difference"]
        judged.append(goal(name, PREDICTED_GATE, figure, is_upper=True, where=worst["method"]))
    return judged
