"""The tables of `sooner bench scale`, for the terminal and for Markdown."""

from __future__ import annotations

from typing import Any

from ..pages import ReportTable, cell, head, sections

STAGES = ("read", "draft", "prefill", "decode", "write")


def tables(result: dict[str, Any]) -> list[ReportTable]:
    """Goals, arms, processor time, predictions and stages."""
    made = [_goals(result), _arms(result), _processors(result)]
    if result["predictions"]:
        made.append(_predictions(result))
    if result["stage_times"]:
        made.append(_stages(result))
    return made


def markdown(result: dict[str, Any], source: str) -> str:
    """The page; `source` names the JSON it came from."""
    settings = result["settings"]
    told = (
        f"`sooner parse --model {settings['model']} --drafter {settings['drafter']}` of scans in "
        f"PDFs of {settings['document_pages']} pages. A worker is one core, for reading, OCR, "
        "model and writing: `plain-2` are two commands on one folder, each on a core of its own, "
        "that share documents by leases; `ray-1` and `ray-2` are `sooner parse --ray` with one and "
        f"two parsers ({settings['in_flight']} pages at once in each), whose driver and servers "
        "run on the same one or two cores. All runs of a repeat come one after the other, in turns "
        "forwards and backwards."
    )
    lines = [*head(result, source, "Scale: one worker and two"), ""]
    for one in result["earlier"]:
        told_of = f"`{' '.join(one['argv'])}` · {one['date']} · revision `{one['git']}`"
        lines += [f"Some runs are of {told_of}.", ""]
    return "\n".join([*lines, told, *sections(tables(result))]) + "\n"


def _goals(result: dict[str, Any]) -> ReportTable:
    rows = [
        [
            one["goal"],
            f"{one['side']} {one['wanted']:g}",
            f"{one['reached']:.3g}",
            "met" if one["met"] else "**missed**",
        ]
        for one in result["goals"]
    ]
    return ReportTable("Goals", ["goal", "wanted", "reached", ""], rows, "Fixed beforehand.")


def _arms(result: dict[str, Any]) -> ReportTable:
    ratio = {(one["what"], one["arm"]): one["value"] for one in result["ratios"]}
    rows = [
        [
            one["arm"],
            f"{one['rate']:.3f}",
            f"{one['low']:.3f} to {one['high']:.3f}",
            f"{1 / one['rate']:.2f}",
            cell(ratio.get(("speedup", one["arm"])), "{:.2f}×"),
            cell(ratio.get(("overhead", one["arm"])), "{:+.1%}"),
            f"{one['start']:.1f}",
            f"{one['seconds']:.1f}",
            f"{one['runs']} × {one['pages']}",
        ]
        for one in result["arms"]
    ]
    heads = [
        "arm", "pages/s", "of each run", "s a page", "over one worker", "s a page over plain",
        "start, s", "whole run, s", "runs × pages",
    ]  # fmt: skip
    remark = (
        "*pages/s* are the pages that long runs have more than a short one, over the seconds that "
        "they take more; *start* is what is left of the short run: imports, the model, Ray, and "
        "the end of processes. *whole run* has both, the median."
    )
    return ReportTable("Arms", heads, rows, remark)


def _processors(result: dict[str, Any]) -> ReportTable:
    kinds = sorted({kind for one in result["arms"] for kind in one["cpu"]})
    rows = [
        [
            one["arm"],
            *(cell(one["cpu"].get(kind), "{:.1f}") for kind in kinds),
            f"{one['bench_cpu']:.1f}",
            f"{sum(one['cpu'].values()) / one['seconds'] / one['workers']:.0%}",
            cell(one["starved"], "{:.1f}"),
        ]
        for one in result["arms"]
    ]
    remark = (
        "Seconds of processors in a long run, starts included, by kind of process: *command* is "
        "the command itself (with Ray the driver, without it the worker and its model), *raylet* "
        "and *gcs_server* are Ray's. The bench's own process runs on the same cores. *starved* is "
        "for how long Ray's parsers had no page."
    )
    heads = ["arm", *kinds, "bench", "of its cores", "starved, s"]
    return ReportTable("Processor time", heads, rows, remark)


def _predictions(result: dict[str, Any]) -> ReportTable:
    rows = [
        [
            one["arm"],
            f"{one['predicted']:.3f}",
            f"{one['measured']:.3f}",
            f"{one['error']:+.1%}",
        ]
        for one in result["predictions"]
    ]
    notes = "; ".join(result["predictions"][0]["notes"])
    remark = (
        "`sooner predict --cluster` with `--accelerators 0`, from the records of `plain-1`, on as "
        f"many machines of one core ({notes}). It knows nothing of Ray's own processes."
    )
    return ReportTable("Predicted", ["arm", "pages/s", "measured", "off by"], rows, remark)


def _stages(result: dict[str, Any]) -> ReportTable:
    pages = result["stage_times"]["pages"]
    mean = {name: sum(page[name] for page in pages) / len(pages) for name in STAGES}
    rows = [[name, f"{mean[name]:.3f}"] for name in STAGES]
    remark = (
        "Seconds a page in the records of `plain-1`, as they are: OCR of a page runs beside the "
        "page before it on the same core, so both take longer by the clock than alone."
    )
    return ReportTable("Stages of one worker", ["stage", "s a page"], rows, remark)
