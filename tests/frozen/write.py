"""Freezes the ids of every run. From the project's root:

    PYTHONPATH=tests python -m frozen.write [greedy|sampled ...]

writes the parts that are named (both by default) and keeps the other. Freeze `sampled` anew when
the random numbers change on purpose, `greedy` only when runs are added, and say so in the commit.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import transformers

import tiny
from frozen.runs import PARTS, TextRun, counts, of_draft

IDS = Path(__file__).with_name("ids.json")


@contextmanager
def scrambled_clock(seed: int) -> Iterator[None]:
    """A clock that goes on by random steps: whatever depends on it shows."""
    random_steps, now = random.Random(seed), [0.0]

    def tick() -> float:
        now[0] += random_steps.choice((1e-5, 1e-3, 1e-1)) * random_steps.random()
        return now[0]

    with (
        mock.patch.object(time, "perf_counter", tick),
        mock.patch.object(time, "thread_time", tick),
    ):
        yield


def frozen(run: TextRun) -> dict[str, Any]:
    """The entry of a run.

    Raises:
        ValueError: greedy ids are not those of HF, or ids or counts depend on the clock.
    """
    end = run.end()
    ids, stats = run.decode(end)
    hf = run.of_hf(end)
    entry: dict[str, Any] = {"ids": ids, "counts": counts(stats)}
    if end is not None:
        entry["end"] = end
    with scrambled_clock(1):
        again, other = run.decode(end)
    if again != ids or counts(other) != counts(stats):
        raise ValueError(f"{run}: what it says or counts depends on the clock; put it in TIMED")
    if run.is_greedy:
        if ids != hf:
            raise ValueError(f"{run}: greedy ids are not those of HF's generate")
    else:
        entry["hf"] = hf
    return entry


def main(parts: list[str]) -> None:
    """Write `ids.json`."""
    torch.set_num_threads(1)
    if unknown := set(parts) - set(PARTS):
        raise SystemExit(f"unknown part {sorted(unknown)[0]!r}; one of {', '.join(PARTS)}")
    record = json.loads(IDS.read_text()) if IDS.is_file() else {}
    versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    for part in parts or PARTS:
        entries = {str(run): frozen(run) for run in PARTS[part]()}
        record[part] = {"versions": versions, "runs": entries}
    drafts = {family: of_draft(family) for family in tiny.FAMILIES}
    lines = [f'"drafts": {json.dumps(drafts, separators=(",", ":"))}']
    lines += [f"{json.dumps(part)}: {lines_of(record[part])}" for part in PARTS]
    IDS.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"wrote {IDS.name}: {IDS.stat().st_size / 1024:.0f} KiB")


def lines_of(part: dict[str, Any]) -> str:
    """A part as JSON with one line for each run, so that differences can be read."""
    runs = [f"{json.dumps(name)}: {json.dumps(entry, separators=(',', ':'))}"
            for name, entry in part["runs"].items()]  # fmt: skip
    return f'{{"versions": {json.dumps(part["versions"])}, "runs": {{\n' + ",\n".join(runs) + "\n}}"


if __name__ == "__main__":
    main(sys.argv[1:])
