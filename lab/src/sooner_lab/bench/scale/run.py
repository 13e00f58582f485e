"""`sooner bench scale`: one worker and two, with Ray and without, and what was predicted of them.

A worker is one core for reading, OCR, model and writing. `command` runs `sooner parse` on its cores
and looks at its processes; the simulated cluster is held against what the runs did.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median

from sooner.errors import SoonerError
from sooner.provenance import provenance

from ...theory.cluster import Cluster, StageTimes, fitted, simulate
from ...theory.cluster.fit import PAGES
from ..goals import goal
from ..parse.pdf import write_pdf
from ..parse.sheets import sample_sheets
from ..run import Data, Keep, Progress
from .command import run_arm
from .settings import ARMS, ERROR, OVERHEAD, SPEEDUP, ScaleBenchSettings


def run(
    settings: ScaleBenchSettings,
    progress: Progress = print,
    keep: Keep | None = None,
    before: Data | None = None,
) -> Data:
    """Run the arms, and say what follows.

    Args:
        keep: handed the result as far as it is, after each run.
        before: an earlier result of the same pages, whose runs are kept.

    Returns:
        `runs`; `arms`, `ratios`, `predictions`, `goals` made of them; `stage_times` of one worker;
        `provenance` of this run, and of those before it.

    Raises:
        SoonerError: too few cores, a run that failed, or `before` is of other pages.
    """
    cores = _cores(max(ARMS[name].workers for name in settings.arms))
    result: Data = {
        "bench": "scale",
        "settings": asdict(settings),
        "provenance": provenance("cpu", "float32", settings.seed),
        "earlier": [],
        "cores": cores,
        "runs": [],
        "stage_times": None,
    }
    if before is not None:
        _check_alike(before, settings)
        result["earlier"] = [before["provenance"], *before["earlier"]]
        result["runs"], result["stage_times"] = before["runs"], before["stage_times"]
    with tempfile.TemporaryDirectory() as folder:
        for pages, repeats in ((settings.short, 1), (settings.pages, settings.repeats)):
            if not pages:
                continue
            progress(f"drawing {pages} pages")
            documents = write_documents(Path(folder) / f"{pages}", pages, settings)
            for _ in range(repeats):
                _repeat(result, documents, pages, settings, progress, keep)
    return _completed(result)


def _repeat(
    result: Data,
    documents: Path,
    pages: int,
    settings: ScaleBenchSettings,
    progress: Progress,
    keep: Keep | None,
) -> None:
    """Every arm once on the same pages, forwards and backwards in turn."""
    done = [entry for entry in result["runs"] if entry["pages"] == pages]
    repeat = 1 + max((entry["repeat"] for entry in done), default=-1)
    for name in settings.arms if repeat % 2 == 0 else reversed(settings.arms):
        progress(f"{name}: {pages} pages, repeat {repeat + 1}")
        out = documents.parent / "out"
        made = run_arm(
            name, ARMS[name], documents, out, result["cores"], settings, repeat=repeat, pages=pages
        )
        result["runs"] = [*result["runs"], asdict(made)]
        if name == BASELINE and pages == settings.pages:
            result["stage_times"] = StageTimes.read(out).as_dict()
        shutil.rmtree(out)
        if keep is not None:
            keep(_completed(result))


def _completed(result: Data) -> Data:
    """The result with what follows of its runs."""
    rows = arm_rows(result["runs"])
    completed = {**result, "arms": rows, "ratios": ratios(rows)}
    completed["predictions"] = predictions(rows, result["stage_times"])
    completed["goals"] = goals(completed)
    return completed


def write_documents(folder: Path, pages: int, settings: ScaleBenchSettings) -> Path:
    """Scans of so many pages, different ones, in PDFs of `document_pages`."""
    folder.mkdir()
    sheets = sample_sheets(pages, "document", settings.seed)
    size = settings.document_pages
    for first in range(0, pages, size):
        write_pdf(folder / f"{first // size:03}.pdf", sheets[first : first + size], False)
    return folder


def _cores(count: int) -> list[int]:
    there = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(there) < count:
        raise SoonerError(
            f"{count} workers need {count} cores that they can be kept on, and there are "
            f"{len(there)}; leave arms out with --arms"
        )
    return there[:count]


def _check_alike(before: Data, settings: ScaleBenchSettings) -> None:
    """Runs of other pages or other settings can't be put beside these."""
    now = asdict(settings)
    for name in ("pages", "document_pages", "drafter", "model", "in_flight", "seed"):
        if before["settings"][name] != now[name]:
            raise SoonerError(
                f"the result to add to has {name} {before['settings'][name]}, and this run "
                f"{now[name]}; write another file"
            )


@dataclass(frozen=True)
class ArmRate:
    """What the runs of an arm say.

    Attributes:
        rate: pages a second, the start left out: pages that long runs have more than short ones,
            over the seconds that these take.
        low, high: the same of each long run alone.
        start: seconds of a run that are not of its pages.
        seconds: of a long run, the median.
    """

    rate: float
    low: float
    high: float
    start: float
    seconds: float


def rate_of(runs: Sequence[Data], arm: str) -> ArmRate | None:
    """Returns the rate of an arm; `None` without runs of two lengths."""
    arm_runs = [entry for entry in runs if entry["arm"] == arm]
    lengths = sorted({entry["pages"] for entry in arm_runs})
    if len(lengths) < 2:
        return None
    few, many = lengths[0], lengths[-1]
    short = median(entry["seconds"] for entry in arm_runs if entry["pages"] == few)
    long = [entry["seconds"] for entry in arm_runs if entry["pages"] == many]
    rates = [(many - few) / max(seconds - short, 1e-9) for seconds in long]
    rate = (many - few) / max(median(long) - short, 1e-9)
    return ArmRate(rate, min(rates), max(rates), short - few / rate, median(long))


def arm_rows(runs: Sequence[Data]) -> list[Data]:
    """A row for each arm that was run at two lengths."""
    rows = []
    for name, arm in ARMS.items():
        arm_rate = rate_of(runs, name)
        if arm_rate is None:
            continue
        pages = max(entry["pages"] for entry in runs if entry["arm"] == name)
        long = [entry for entry in runs if entry["arm"] == name and entry["pages"] == pages]
        kinds = sorted({kind for entry in long for kind in entry["cpu"]})
        starved = [entry["starved"] for entry in long if entry["starved"] is not None]
        rows.append(
            {
                "arm": name,
                "workers": arm.workers,
                "runs": len(long),
                "pages": pages,
                **vars(arm_rate),
                "cpu": {
                    kind: median(entry["cpu"].get(kind, 0.0) for entry in long) for kind in kinds
                },
                "bench_cpu": median(entry["bench_cpu"] for entry in long),
                "starved": median(starved) if starved else None,
            }
        )
    return rows


def ratios(rows: Sequence[Data]) -> list[Data]:
    """Two workers over one, and Ray over the plain command; only of arms that are there."""
    rate = {row["arm"]: row["rate"] for row in rows}
    result = []
    for kind in ("plain", "ray"):
        single, two = rate.get(f"{kind}-1"), rate.get(f"{kind}-2")
        if single and two:
            result.append({"what": "speedup", "arm": f"{kind}-2", "over": f"{kind}-1"})
            result[-1]["value"] = two / single
    for workers in (1, 2):
        plain, ray = rate.get(f"plain-{workers}"), rate.get(f"ray-{workers}")
        if plain and ray:
            result.append({"what": "overhead", "arm": f"ray-{workers}", "over": f"plain-{workers}"})
            result[-1]["value"] = plain / ray - 1
    return result


BASELINE = "plain-1"
"""The arm whose records the simulation is fitted to."""
WORKER = Cluster(machines=1, accelerators=0, cpus=1, in_flight=1)
"""A worker: a core that reads, drafts, parses and writes."""


def predictions(rows: Sequence[Data], stage_times: Data | None) -> list[Data]:
    """A row for each arm but `BASELINE`: predicted pages a second, and their error.

    Args:
        rows: of `figures.arm_rows`.
        stage_times: of `BASELINE`'s run, as `StageTimes.as_dict` gives them.
    """
    rate = {row["arm"]: row["rate"] for row in rows}
    if stage_times is None or BASELINE not in rate:
        return []
    times = fitted(StageTimes.from_dict(stage_times), WORKER, rate[BASELINE])
    result = []
    for name, arm in ARMS.items():
        if name in rate and name != BASELINE and not (arm.is_ray and arm.workers == 1):
            many = simulate(times, replace(WORKER, machines=arm.workers), PAGES * arm.workers)
            result.append(
                {
                    "arm": name,
                    "predicted": many.rate,
                    "measured": rate[name],
                    "error": many.rate / rate[name] - 1,
                    "notes": list(times.notes),
                }
            )
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
