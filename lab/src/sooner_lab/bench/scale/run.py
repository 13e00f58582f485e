"""`sooner bench scale`: one worker and two, with Ray and without, and what was predicted of them.

A worker is one core for reading, OCR, model and writing. `command` runs `sooner parse` on its cores
and looks at its processes; the simulated cluster is held against what the runs did.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median

from sooner.errors import SoonerError

from ...theory.cluster import Cluster, StageTimes, fitted, simulate
from ...theory.cluster.fit import PAGES
from ..goals import goal
from ..parse.pdf import write_pdf
from ..parse.sheets import sample_sheets
from ..run import Data, Keep, Progress, Recorder
from .command import run_arm
from .settings import ARMS, ERROR, OVERHEAD, SPEEDUP, ScaleBenchSettings

BASELINE = "plain-1"
"""The arm whose records the simulation is fitted to."""
WORKER = Cluster(machines=1, accelerators=0, cpus=1, in_flight=1)
"""A worker: a core that reads, drafts, parses and writes."""


def run(
    settings: ScaleBenchSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: Data | None = None,
) -> Data:
    """Run the arms, forwards and backwards in turn, and say what follows.

    Args:
        keep: handed the result as far as it is, after each run.
        before: an earlier result of the same pages, whose runs are kept.

    Returns:
        `runs`; `arms`, `ratios`, `predictions`, `goals` made of them; `stage_times` of one worker;
        `provenance` of this run, and `earlier`, those of the runs before it.

    Raises:
        SoonerError: too few cores, a run that failed, or `before` is of other pages.
    """
    cores = _cores(max(ARMS[name] for name in settings.arms))
    recorder = Recorder("scale", settings, goals, keep)
    recorder.origin("cpu", "float32", settings.seed)
    result = recorder.result
    result |= {"earlier": [], "cores": cores, "runs": [], "stage_times": None}
    if before is not None:
        _check_alike(before, settings)
        result["earlier"] = [before["provenance"], *before["earlier"]]
        result |= {name: before[name] for name in ("runs", "stage_times")}
    with tempfile.TemporaryDirectory() as folder:
        lengths = [settings.short] * bool(settings.short) + [settings.pages] * settings.repeats
        for pages in lengths:
            documents = Path(folder) / f"{pages}"
            if not documents.exists():
                progress(f"drawing {pages} pages")
                write_documents(documents, pages, settings)
            runs = [entry["repeat"] for entry in result["runs"] if entry["pages"] == pages]
            repeat = 1 + max(runs, default=-1)
            for name in settings.arms if repeat % 2 == 0 else reversed(settings.arms):
                progress(f"{name}: {pages} pages, repeat {repeat + 1}")
                out = documents.parent / "out"
                made = {"arm": name, "repeat": repeat, "pages": pages}
                made |= run_arm(name, documents, out, cores, settings)
                if name == BASELINE and pages == settings.pages:
                    result["stage_times"] = StageTimes.read(out).as_dict()
                shutil.rmtree(out)
                recorder.add(**figures_of([*result["runs"], made], result["stage_times"]))
    return recorder.add(**figures_of(result["runs"], result["stage_times"]))


def figures_of(runs: Sequence[Data], stage_times: Data | None) -> Data:
    """Return the runs and what follows of them."""
    rows = arm_rows(runs)
    predicted = predictions(rows, stage_times)
    return {"runs": [*runs], "arms": rows, "ratios": ratios(rows), "predictions": predicted}


def write_documents(folder: Path, pages: int, settings: ScaleBenchSettings) -> None:
    """Write scans of so many pages, different ones, in PDFs of `document_pages`."""
    folder.mkdir()
    sheets = sample_sheets(pages, "document", settings.seed)
    size = settings.document_pages
    for first in range(0, pages, size):
        write_pdf(folder / f"{first // size:03}.pdf", sheets[first : first + size], False)


def _cores(count: int) -> list[int]:
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(available) < count:
        raise SoonerError(
            f"{count} workers need {count} cores that they can be kept on, and there are "
            f"{len(available)}; leave arms out with --arms"
        )
    return available[:count]


def _check_alike(before: Data, settings: ScaleBenchSettings) -> None:
    """Runs of other pages or other settings can't be put beside these."""
    now = asdict(settings)
    for name in ("pages", "document_pages", "drafter", "model", "in_flight", "seed"):
        if before["settings"][name] != now[name]:
            raise SoonerError(
                f"the result to add to has {name} {before['settings'][name]}, and this run "
                f"{now[name]}; write another file"
            )


def arm_rows(runs: Sequence[Data]) -> list[Data]:
    """Return a row for each arm that was run at two lengths.

    `rate` is pages a second, the start left out: pages that long runs have more than short ones,
    over the seconds that these take; `low` and `high` are those of each long run alone. `start` is
    the seconds of a run that are not of its pages, `seconds` the median of the long runs.
    """
    rows = []
    for name, workers in ARMS.items():
        arm_runs = [entry for entry in runs if entry["arm"] == name]
        lengths = sorted({entry["pages"] for entry in arm_runs})
        if len(lengths) < 2:
            continue
        few, many = lengths[0], lengths[-1]
        short = median(entry["seconds"] for entry in arm_runs if entry["pages"] == few)
        long = [entry for entry in arm_runs if entry["pages"] == many]
        seconds = median(entry["seconds"] for entry in long)
        each = [(many - few) / max(entry["seconds"] - short, 1e-9) for entry in long]
        rate = (many - few) / max(seconds - short, 1e-9)
        kinds = sorted({kind for entry in long for kind in entry["cpu"]})
        starved = [entry["starved"] for entry in long if entry["starved"] is not None]
        rows.append({
            "arm": name, "workers": workers, "runs": len(long), "pages": many, "rate": rate,
            "low": min(each), "high": max(each), "start": short - few / rate, "seconds": seconds,
            "cpu": {kind: median(entry["cpu"].get(kind, 0.0) for entry in long) for kind in kinds},
            "bench_cpu": median(entry["bench_cpu"] for entry in long),
            "starved": median(starved) if starved else None,
        })  # fmt: skip
    return rows


def ratios(rows: Sequence[Data]) -> list[Data]:
    """Return two workers over one, and Ray over the plain command; only of arms that are there."""
    rate = {row["arm"]: row["rate"] for row in rows}
    pairs = [("speedup", f"{kind}-2", f"{kind}-1") for kind in ("plain", "ray")]
    pairs += [("overhead", f"ray-{count}", f"plain-{count}") for count in (1, 2)]
    return [
        {
            "what": what, "arm": arm, "over": over,
            "value": rate[arm] / rate[over] if what == "speedup" else rate[over] / rate[arm] - 1,
        }
        for what, arm, over in pairs
        if rate.get(arm) and rate.get(over)
    ]  # fmt: skip


def predictions(rows: Sequence[Data], stage_times: Data | None) -> list[Data]:
    """Return a row for each arm of two workers: predicted pages a second, and their error.

    Args:
        rows: of `arm_rows`.
        stage_times: of `BASELINE`'s run, as `StageTimes.as_dict` gives them.
    """
    rate = {row["arm"]: row["rate"] for row in rows}
    if stage_times is None or BASELINE not in rate:
        return []
    times = fitted(StageTimes.from_dict(stage_times), WORKER, rate[BASELINE])
    result = []
    for name, workers in ARMS.items():
        if name in rate and workers > 1:
            many = simulate(times, replace(WORKER, machines=workers), PAGES * workers)
            error = many.rate / rate[name] - 1
            figures = {"arm": name, "predicted": many.rate, "measured": rate[name], "error": error}
            result.append({**figures, "notes": list(times.notes)})
    return result


def goals(result: Data) -> list[Data]:
    """Return a row for each goal that was measured."""
    rows = []
    for each in result["ratios"]:
        if each["what"] == "speedup":
            name = f"{each['arm']}: pages a second over {each['over']}"
            rows.append(goal(name, SPEEDUP, each["value"]))
        elif each["arm"] == "ray-1":
            name = f"{each['arm']}: seconds a page more than {each['over']}, start-up apart"
            rows.append(goal(name, OVERHEAD, each["value"], is_upper=True))
    for each in result["predictions"]:
        name = f"{each['arm']}: predicted pages a second off by"
        rows.append(goal(name, ERROR, abs(each["error"]), is_upper=True))
    digests = {(each["pages"], each["digest"]) for each in result["runs"]}
    more = len(digests) - len({each["pages"] for each in result["runs"]})
    rows.append(goal("different outputs of runs of the same pages", 0, more, is_upper=True))
    return rows
