"""Strict and relaxed acceptance on the same tree, whichever tree that is.

A relaxed chain against a strict tree mixes two changes: what is accepted, and what is offered. Here
each ratio has the same tree on both sides.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sooner.tasks.act.policy import CPU_NODES, Policy

from .arms import ActContender, Loader, plain, relaxed
from .observations import Recorded
from .offline import Offline
from .settings import ActSettings

Progress = Callable[[str], None]


@dataclass(frozen=True)
class DraftTreeSize:
    """The size of a draft tree: most nodes, levels, and continuations of a node."""

    nodes: int
    depth: int
    top_k: int

    def __str__(self) -> str:
        if self.top_k == 1:
            return f"chain of {self.depth}"
        return f"{self.nodes} nodes, depth {self.depth}, top {self.top_k}"


PAPER = DraftTreeSize(50, 5, 8)
"""Spec-VLA's table 4. Its section 5.1 says depth 4; five tokens are accepted in its table 2."""


def shapes(policy: Policy) -> tuple[DraftTreeSize, ...]:
    """The policy's own two, as `relaxed` and as `strict` has it, and the paper's two."""
    longest = policy.horizon * max(stats.dims for stats in policy.statistics.values())
    depth = max(longest - 2, 1)
    return (
        DraftTreeSize(depth, depth, 1),
        DraftTreeSize(CPU_NODES, depth, 8),
        DraftTreeSize(50, 4, 8),
        PAPER,
    )


def trees(
    settings: ActSettings, make: Loader, recorded: list[Recorded], progress: Progress
) -> list[dict[str, Any]]:
    """A row for each shape; none for a policy without a head.

    Returns:
        For each: `tree` (its name), `nodes`, `depth`, `top_k`; acceptance lengths `strict` and
        `relaxed`, `ratio` of the two; `strict_speedup` and `relaxed_speedup` of decoding over
        plain, where parity of the exact arms is not red.
    """
    first = plain(make)
    if first.policy.head is None:
        return []
    arms: list[ActContender] = [first]
    for shape in shapes(first.policy):
        options = asdict(shape)
        exact = make(None, **options)
        arms.append(ActContender(f"strict, {shape}", "strict", exact))
        arms.append(relaxed(settings.chosen, make, f"relaxed, {shape}", **options))
    rows = Offline(arms, recorded).run(settings, progress)
    pairs = zip(shapes(first.policy), rows[1::2], rows[2::2], strict=True)
    return [_row(*pair) for pair in pairs]


def _row(shape: DraftTreeSize, strict: dict[str, Any], near: dict[str, Any]) -> dict[str, Any]:
    lengths = [figures["mean_acceptance_length"] for figures in (strict, near)]
    return {
        "tree": str(shape),
        **asdict(shape),
        "strict": lengths[0],
        "relaxed": lengths[1],
        "ratio": lengths[1] / lengths[0],
        "strict_run_length": strict["accepted_run_length"],
        "relaxed_run_length": near["accepted_run_length"],
        "strict_speedup": strict.get("decode_speedup"),
        "relaxed_speedup": near.get("decode_speedup"),
        "parity": strict["parity"],
    }
