"""One run as plain data, and back: so that figures can be made from runs of an earlier start."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict
from typing import Any

from sooner.engine.stats.run import Stats
from sooner.parity import Parity
from sooner.tasks.comparison import plain_data

from ..run import TimedRun

Record = dict[str, Any]
"""`arm`, `clip`, `repeat`; the fields of a `TimedRun`; `first_token_seconds`, `parity`, and what
only some arms have: `acceptance_ratio` and what a pruner keeps."""

COUNTS = (
    "mode", "method", "tokens", "decode_tokens", "nfe", "num_draft_tokens", "num_draft_levels",
    "runs", "seconds", "draft_seconds", "draft_forwards", "draft_forward_seconds", "rank_seconds",
    "draft_is_hidden", "notes",
)  # fmt: skip


def to_record(sample: TimedRun, parity: Parity, **about: Any) -> Record:
    """A run of one row as plain data."""
    stats = None if sample.stats is None else plain_stats(sample.stats)
    return {
        **about,
        "tokens": sample.tokens[0],
        "decode_seconds": sample.decode_seconds,
        "e2e_seconds": sample.e2e_seconds,
        "decode_tokens": sample.decode_tokens,
        "parity": plain_data(parity),
        "stats": stats,
    }


def plain_stats(stats: Stats) -> dict[str, Any]:
    """Counts and times of a run, ready for JSON."""
    return {name: getattr(stats, name) for name in COUNTS} | {
        "acceptance_histogram": {str(k): v for k, v in stats.acceptance_histogram.items()},
        "verify_seconds": {
            str(block): [round(seconds, 7) for seconds in times]
            for block, times in stats.verify_seconds.items()
        },
    }


def to_sample(record: Record) -> TimedRun:
    """The run that a record tells of."""
    stats = record["stats"]
    return TimedRun(
        [record["tokens"]],
        record["decode_seconds"],
        record["e2e_seconds"],
        record["decode_tokens"],
        None if stats is None else to_stats(stats),
    )


def to_stats(data: dict[str, Any]) -> Stats:
    """Counts and times from plain data."""
    blocks: dict[int, list[float]] = defaultdict(list)
    blocks.update({int(block): times for block, times in data["verify_seconds"].items()})
    counts = Counter({int(k): v for k, v in data["acceptance_histogram"].items()})
    rest = {name: data[name] for name in COUNTS}
    return Stats(**rest, acceptance_histogram=counts, verify_seconds=blocks)


def to_parity(record: Record) -> Parity:
    """The parity verdict that a record holds."""
    return Parity(**{name: record["parity"][name] for name in asdict(Parity("identical"))})
