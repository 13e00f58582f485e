"""The page of `sooner bench scale`."""

from __future__ import annotations

from ..declared import Data
from ..render import Page, ReportTable, Table, cell

STAGES = ("read", "draft", "prefill", "decode", "write")


def _intro(result: Data) -> list[str]:
    settings = result["settings"]
    lines = [""]
    for each in result["earlier"]:
        origin = f"`{' '.join(each['argv'])}` · {each['date']} · revision `{each['git']}`"
        lines += [f"Some runs are of {origin}.", ""]
    about = (
        f"`sooner parse --model {settings['model']} --drafter {settings['drafter']}` of scans in "
        f"PDFs of {settings['document_pages']} pages. A worker is one core, for reading, OCR, "
        "model and writing: `plain-2` are two commands on one folder, each on a core of its own, "
        "that share pages; `ray-1` and `ray-2` are `sooner parse --ray` with one and "
        f"two parsers ({settings['in_flight']} pages at once in each), whose driver and servers "
        "run on the same one or two cores. All runs of a repeat come one after the other, in turns "
        "forwards and backwards."
    )
    return [*lines, about]


def _arms(result: Data) -> list[Data]:
    """Return the rows of arms, each with its ratios."""
    return [
        {
            **row,
            "ratios": {e["what"]: e["value"] for e in result["ratios"] if e["arm"] == row["arm"]},
        }
        for row in result["arms"]
    ]


def _processors(result: Data) -> list[ReportTable]:
    kinds = sorted({kind for row in result["arms"] for kind in row["cpu"]})
    rows = [
        [
            row["arm"],
            *(cell(row["cpu"].get(kind), "{:.1f}") for kind in kinds),
            f"{row['bench_cpu']:.1f}",
            f"{sum(row['cpu'].values()) / row['seconds'] / row['workers']:.0%}",
            cell(row["starved"], "{:.1f}"),
        ]
        for row in result["arms"]
    ]
    remark = (
        "Seconds of processors in a long run, starts included, by kind of process: *command* is "
        "the command itself (with Ray the driver, without it the worker and its model), *raylet* "
        "and *gcs_server* are Ray's. The bench's own process runs on the same cores. *starved* is "
        "for how long Ray's parsers had no page."
    )
    heads = ["arm", *kinds, "bench", "of its cores", "starved, s"]
    return [ReportTable("Processor time", heads, rows, remark)]


def _stages(result: Data) -> list[Data]:
    pages = (result["stage_times"] or {}).get("pages") or []
    return [
        {"stage": name, "seconds": sum(page[name] for page in pages) / len(pages)}
        for name in (STAGES if pages else ())
    ]


def _predicted(result: Data) -> str:
    notes = "; ".join(result["predictions"][0]["notes"])
    return (
        "`sooner predict --cluster` with `--accelerators 0`, from the records of `plain-1`, on as "
        f"many machines of one core ({notes}). It knows nothing of Ray's own processes."
    )


PAGE = Page(
    "Scale: one worker and two",
    (
        Table(
            "Arms",
            _arms,
            (
                ("arm", "arm", "{}"), ("rate", "pages/s", "{:.3f}"),
                (lambda row: f"{row['low']:.3f} to {row['high']:.3f}", "of each run", "{}"),
                (lambda row: 1 / row["rate"], "s a page", "{:.2f}"),
                ("ratios.speedup", "over one worker", "{:.2f}×"),
                ("ratios.overhead", "s a page over plain", "{:+.1%}"),
                ("start", "start, s", "{:.1f}"), ("seconds", "whole run, s", "{:.1f}"),
                (lambda row: f"{row['runs']} × {row['pages']}", "runs × pages", "{}"),
            ),
            "*pages/s* are the pages that long runs have more than a short one, over the seconds "
            "that they take more; *start* is what is left of the short run: imports, the model, "
            "Ray, and the end of processes. *whole run* has both, the median.",
        ),
        _processors,
        Table(
            "Predicted",
            "predictions",
            (
                ("arm", "arm", "{}"), ("predicted", "pages/s", "{:.3f}"),
                ("measured", "measured", "{:.3f}"), ("error", "off by", "{:+.1%}"),
            ),
            _predicted,
        ),
        Table(
            "Stages of one worker",
            _stages,
            (("stage", "stage", "{}"), ("seconds", "s a page", "{:.3f}")),
            "Seconds a page in the records of `plain-1`, as they are: OCR of a page runs beside "
            "the page before it on the same core, so both take longer by the clock than alone.",
        ),
    ),
    intro=_intro,
    goals="Fixed beforehand.",
)  # fmt: skip
