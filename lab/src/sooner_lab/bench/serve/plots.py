"""The figure of a serve result, as PNG."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..figures import COLOURS, MARKERS, draw, subplots
from .page import drawable
from .settings import PLAIN

Data = dict[str, Any]


def write_figures(result: Data, folder: Path, stem: str) -> list[str]:
    """Draw every figure that the result has data for; returns the files' names.

    Raises:
        SoonerError: matplotlib is not installed.
    """
    return draw({name: FIGURES[name] for name in drawable(result)}, result, folder, stem)


def throughput(result: Data) -> Any:
    """Tokens a second by clients, and over plain; an arm is a line, or a mark at its one load."""
    figure, (left, right) = subplots(2, "closed loops")
    rows = [row for row in result["clients"] if "tokens_per_second" in row]
    for number, arm in enumerate(dict.fromkeys(row["arm"] for row in rows)):
        mine = [row for row in rows if row["arm"] == arm]
        at = [row["clients"] for row in mine]
        look = {"color": COLOURS[number], "marker": MARKERS[number], "label": arm}
        left.plot(at, [row["tokens_per_second"] for row in mine], **look)
        over = [row for row in mine if (row["over_plain"] or {}).get("value")]
        if arm == PLAIN or len(over) < 2:
            continue
        at = [row["clients"] for row in over]
        right.plot(at, [row["over_plain"]["value"] for row in over], **look)
        low, high = zip(*(row["over_plain"]["interval"] for row in over), strict=True)
        right.fill_between(at, low, high, color=COLOURS[number], alpha=0.15)
    right.axhline(1, color="black", linewidth=0.8)
    for axis, label in ((left, "tokens a second"), (right, "over plain, ×")):
        axis.set_xscale("log", base=2)
        counts = sorted({row["clients"] for row in rows})
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set(xlabel="clients", ylabel=label, ylim=(0, None))
    left.legend(fontsize=8)
    return figure


FIGURES: dict[str, Callable[[Data], Any]] = {"throughput": throughput}
