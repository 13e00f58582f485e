"""The tables of a canvas result, for the terminal and Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..documents.judging import rows_of
from ..pages import ReportTable, cell, head, sections
from .judging import one_of, over
from .settings import ARMS, COUPLED, SURE

Figures = dict[str, Any]
ABOUT = (
    "> **A known law.** Codes follow a quantised Gauss-Markov field in closed form: each hangs on "
    "those to its left, above it and in the previous frame. Nothing is trained; the forwards are "
    "those of a decoder with random weights. What a trained model's pictures gain is another "
    "question ([Pictures and clips](imagine.md))."
)

TRAINED = (
    "> **Trained.** A transformer of 6 layers of 256 channels learnt to draw dead-leaves textures, "
    "16 × 16 codes of patches (`sooner train miniature leaves`). It confirms on a law that was "
    "learnt what [canvases of a known law](canvas.md) tell. *The law* below is the decoder itself, "
    "drawn from by HF's `generate`."
)


def tables(result: Figures) -> list[ReportTable]:
    """Gate and goals, then what the result has readings for."""
    found = [_gate(result), _goals(result), _calibration(result), _counts(result)]
    found += [_dependence(result), _quality(result), _clocks(result)]
    return [one for one in found if one.rows]


def markdown(result: Figures, source: str) -> str:
    """The page; `source` names the JSON that it came from."""
    asked = result["settings"]
    drawn = f"{asked['drawings']} drawings an arm. Intervals: 95 %, bootstrap over drawings."
    if result["model"] == "leaves":
        lines = [*head(result, source, "Dead leaves: a trained confirmation"), "", TRAINED, ""]
        real = result["real"]
        lines += [f"A code of a real texture has {real['nats']:.2f} nats, and "
                  f"{real['by_frequency']:.2f} by its frequency. {drawn}"]  # fmt: skip
    else:
        lines = [*head(result, source, "Canvases of a known law"), "", ABOUT, ""]
        lines += [f"{asked['codes']} codes, ρ = {asked['rho']:g}, σ = {result['sigma']:.2f} bins "
                  f"({asked['entropy']:g} nats). {drawn}"]  # fmt: skip
    if any(not one["passed"] for one in result["gate"]):
        lines += ["", "**The gate is not passed: this world may not judge.**"]
    return "\n".join([*lines, *sections(tables(result))]) + "\n"


def _rate(one: Figures, form: str = "{:.2f}") -> str:
    if one["interval"] is None:
        return cell(one["value"], form)
    low, high = (form.format(side) for side in one["interval"])
    return f"{form.format(one['value'])} [{low}, {high}]"


def _gate(result: Figures) -> ReportTable:
    rows = [
        [one["gate"], one["wanted"], _rate(one, "{:.3g}"),
         "passed" if one["passed"] else "**not passed**"]
        for one in result["gate"]
    ]  # fmt: skip
    return ReportTable("Gate", ["what", "wanted", "reached", ""], rows)


def _goals(result: Figures) -> ReportTable:
    rows = [
        [one["goal"], f"{one['wanted']:g}", _rate(one), "met" if one["met"] else "**missed**"]
        for one in result["goals"]
    ]
    remark = f"Fixed before any result; the interval has to lie above {SURE:g}, too."
    return ReportTable("Goals", ["goal", "at least", "reached", ""], rows, remark)


def _calibration(result: Figures) -> ReportTable:
    rows = []
    for one in rows_of(result["readings"], part="calibration"):
        share = one["tokens"] * len(one["forwards"]) / sum(one["forwards"])
        rows.append([one["kind"], f"{one['rho']:g}", f"{share:.2f}"])
    heads = ["kind", "ρ", "plain over SJD"]
    return ReportTable("Calibration: forwards, from random codes", heads, rows)


def _counts(result: Figures) -> ReportTable:
    readings, seed = result["readings"], result["settings"]["seed"]
    found, rows = rows_of(readings, part="counts"), []
    for one in rows_of([each for each in found if each["window"]], arm="sjd"):
        kind, start, window = one["kind"], one["start"], one["window"]
        plain = one_of(found, kind=kind, arm="plain")
        arms = [one_of(found, kind=kind, arm=arm, start=start, window=window) for arm in ARMS]
        if plain is None or None in arms:
            continue
        told = [each for each in arms if each is not None]
        rows.append(
            [kind, start, str(window), *(f"{_mean(each['forwards']):.1f}" for each in told),
             _rate(over(plain, told[-1], "forwards", seed)),
             *(_rate(over(one, each, "forwards", seed)) for each in told[1:])]
        )  # fmt: skip
    heads = ["kind", "start", "L", *ARMS, "plain over gumbel"]
    heads += [f"SJD over {arm}" for arm in COUPLED]
    remark = "Forwards of a drawing, and their ratios; both sides of a ratio have the same start."
    return ReportTable("Start × coupling × L", heads, rows, remark)


def _dependence(result: Figures) -> ReportTable:
    found, rows = rows_of(result["readings"], part="dependence"), []
    for one in rows_of(found, arm="sjd"):
        at = {"kind": one["kind"], "rho": one["rho"]}
        others = [one_of(found, arm=arm, **at) for arm in COUPLED]
        plain = {"forwards": [one["tokens"]] * len(one["forwards"])}
        seed = result["settings"]["seed"]
        rows.append(
            [one["kind"], f"{one['rho']:g}", str(one["window"]),
             _rate(over(plain, one, "forwards", seed)),
             *(_rate(over(one, each, "forwards", seed)) for each in others if each)]
        )  # fmt: skip
    heads = ["kind", "ρ", "L", "plain over SJD", *(f"SJD over {arm}" for arm in COUPLED)]
    return ReportTable("Dependence: forwards, from random codes", heads, rows)


def _quality(result: Figures) -> ReportTable:
    quality = result.get("quality") or {"arms": []}
    rows = [
        [one["arm"], "yes" if one["exact"] else "no", f"{one['gap']:+.4f}",
         f"{one['likelihood']:.2g}", f"{one['accuracy']:.3f}", f"{one['classifier']:.2g}",
         f"{one['p']:.2g}"]
        for one in quality["arms"]
    ]  # fmt: skip
    heads = ["pictures by", "exact", "nats a code", "p, likelihood", "accuracy", "p, classifier"]
    remark = "Against drawings of the law itself. *nats a code*: by how much they are likelier."
    return ReportTable("Judge of quality", [*heads, "p, both"], rows, remark)


def _clocks(result: Figures) -> ReportTable:
    readings, seed = rows_of(result["readings"], part="clocks"), result["settings"]["seed"]
    rows = []
    for one in readings:
        plain = one_of(readings, kind=one["kind"], arm="plain")
        sjd = one_of(readings, kind=one["kind"], arm="sjd", start=one["start"])
        rows.append(
            [one["kind"], one["arm"], one["start"] or "–", str(one["window"] or "–"),
             f"{_mean(one['cpu_seconds']):.2f} s",
             "–" if plain is None else _rate(over(plain, one, "cpu_seconds", seed)),
             "–" if sjd is None else _rate(over(sjd, one, "cpu_seconds", seed))]
        )  # fmt: skip
    heads = ["kind", "arm", "start", "L", "a drawing", "plain over it", "SJD over it"]
    asked = result["settings"]
    remark = (
        f"Seconds of decoding, {asked['timed']} drawings one by one: on a CPU a large block costs "
        "more than a small one."
    )
    return ReportTable("This CPU's clock", heads, rows, remark)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
