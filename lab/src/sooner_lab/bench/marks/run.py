"""The whole of `sooner bench marks`: the gate of each draft, then the ways to prune."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sooner.methods.threads import Threads, torch_threads
from sooner.provenance import provenance

from . import settings as fixed
from .gate import Texts, calibrated, gate, share
from .reading import BY_LAYER, GATE, JUDGED, MarkReader, TokenChoice, clips
from .speeds import baselines, speeds

Figures = dict[str, Any]
PARTS = ("gate", "criteria", "layers", "speed", "baselines")
TIMED = {"speed": speeds, "baselines": baselines}


@dataclass(frozen=True)
class MarkSettings:
    """What is measured; the rest is fixed in `settings`.

    Attributes:
        models: folder of a run of `sooner train miniature marks`.
        drafts: checkpoints of the draft's run.
        parts: "gate", "criteria" for the ways to prune, "layers" for the layer that they rank
            at, "speed" of the last draft, and "baselines" of the paper beside it.
        clips: held-out clips; fewer than `settings.CLIPS` are a trial.
        calibrate: find the contrast instead of judging.
        threads: torch threads.
    """

    models: Path
    drafts: tuple[str, ...] = fixed.DRAFTS
    parts: tuple[str, ...] = ("gate",)
    clips: int = fixed.CLIPS
    calibrate: bool = False
    threads: int | None = None


def run(settings: MarkSettings, progress: Callable[[str], None] = print) -> Figures:
    """Measure.

    Returns:
        `drafts`: of each its `gate`, and of each criterion and alpha its share of M (`criteria`),
        of some by layer, too (`layers`); these may be read only where the gate `may_judge`. At the
        gate's alpha each has its share of the random choice's M, too (`over_random`). `target`:
        how good its captions are; with `calibrate`, `calibration` instead; `speed` and
        `baselines`, see `speeds`.
        `settings`, `provenance`.

    Raises:
        SoonerError: a checkpoint is missing.
    """
    reader = MarkReader(settings.models, settings.drafts)
    told = {**asdict(settings), "models": settings.models.name, "clear": fixed.CLEAR}
    result: Figures = {"bench": "marks", "model": "marks", "settings": told}
    threads = Threads.plan(settings.threads, is_miniature=True)
    with torch_threads(threads.target):
        if settings.calibrate:
            result["calibration"] = _calibrate(reader, settings, progress)
        else:
            if set(settings.parts) - TIMED.keys():
                result |= _judge(reader, settings, progress)
            for part, measure in TIMED.items():
                if part in settings.parts:
                    last = settings.drafts[-1]
                    result[part] = measure(reader, last, settings.clips, progress)
    seed = fixed.CALIBRATION_SEED if settings.calibrate else fixed.CLIP_SEED
    result["provenance"] = provenance("cpu", "float32", seed, threads.draft)
    return result


def _calibrate(
    reader: MarkReader, settings: MarkSettings, progress: Callable[[str], None]
) -> Figures:
    """The blind share by contrast, of the last draft, and the contrast that comes of it."""
    name, few = settings.drafts[-1], min(settings.clips, fixed.CALIBRATION_CLIPS)
    both = (TokenChoice(fixed.WHOLE, 0.0), TokenChoice(fixed.BLIND, fixed.ALPHA))
    tried: list[Figures] = []
    for clear in fixed.CLEAR_TRIED:
        arms, scores, _ = _read(reader, both, few, fixed.CALIBRATION_SEED, clear, progress)
        found = share(arms[name][fixed.BLIND], arms[name][fixed.WHOLE], fixed.CALIBRATION_SEED)
        whole = share(arms[name][fixed.WHOLE], arms[name][fixed.WHOLE], fixed.CALIBRATION_SEED)
        told = {"clear": clear, "blind": found, "whole": whole, "target_score": scores}
        tried.append(told)
        progress(f"clear {clear:g}: M {whole['run_length']:.2f}, blind {found['share']:.1f} %")
        if found["share"] is not None and found["share"] >= fixed.CALIBRATED:
            break  # it rises as marks fade, so that none after this comes nearer
    chosen = calibrated({one["clear"]: one["blind"]["share"] for one in tried}, fixed.CALIBRATED)
    return {"draft": name, "tried": tried, "clear": chosen}


def _judge(reader: MarkReader, settings: MarkSettings, progress: Callable[[str], None]) -> Figures:
    ways = {"criteria": JUDGED, "layers": BY_LAYER}
    asked = {part: ways[part] for part in ways if part in settings.parts}
    choices = [*GATE, *(one for told in asked.values() for one in told)]
    seed = fixed.CLIP_SEED
    arms, score, ends = _read(reader, choices, settings.clips, seed, fixed.CLEAR, progress)
    drafts = []
    for name, texts in arms.items():
        found: Figures = {"draft": name, "gate": gate(texts, seed)}
        found |= {part: [_judged(one, texts, ends) for one in told] for part, told in asked.items()}
        drafts.append(found)
    return {"target": {"score": score}, "drafts": drafts}


def _judged(one: TokenChoice, texts: dict[str, Texts], ends: dict[str, float]) -> Figures:
    """A way to prune: its M over the unpruned draft's, and over a random choice of as many; and
    what it keeps of the clip's ends."""
    seed, told = fixed.CLIP_SEED, texts[one.label]
    found = {"criterion": one.name, "alpha": one.alpha, "at_the_ends": ends[one.label]}
    found |= share(told, texts[fixed.WHOLE], seed)
    if one.layer:
        found["layer"] = one.layer
    if one.alpha == fixed.ALPHA:
        over = share(told, texts[fixed.RANDOM], seed)
        found["over_random"] = {"share": over["share"], "interval": over["interval"]}
    return found


def _read(
    reader: MarkReader,
    choices: list[TokenChoice] | tuple[TokenChoice, ...],
    count: int,
    seed: int,
    clear: float,
    progress: Callable[[str], None],
) -> tuple[dict[str, dict[str, Texts]], float, dict[str, float]]:
    """Texts by draft and choice, the mean score of the target's captions, and by choice the mean
    share of the kept tokens at the clips' ends."""
    arms: dict[str, dict[str, list[list[bool]]]] = {
        name: {one.label: [] for one in choices} for name in reader.drafts
    }
    scores, ends = [], []
    for index, clip in enumerate(clips(count, seed, clear)):
        found = reader.read(clip, choices, seed + index)
        scores.append(found["target"]["score"])
        ends.append(found["target"]["ends"])
        for name, told in arms.items():
            for label, texts in told.items():
                texts.append(found[name][label])
        progress(f"clip {index + 1} of {count}")
    means = {label: sum(each[label] for each in ends) / len(ends) for label in ends[0]}
    return {name: dict(told) for name, told in arms.items()}, sum(scores) / len(scores), means
