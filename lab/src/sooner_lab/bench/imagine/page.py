"""The page of `sooner bench imagine`: SCD's tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, Table

KINDS = ("image", "video")
STUDY = {
    "trajectories": (
        "Acceptance rate of a place over its iterations (figure 3)", "trajectories.sjd.lines",
    ),
    "collision": (
        "Collision probability against total variation (figure 4)", "collisions.sjd.points",
    ),
    "strength": ("Coupling strength (figure 5)", "strengths"),
    "hamming": ("Drafts changed after N iterations (figure 6)", "strengths"),
}  # fmt: skip
"""Pictures of a part that is no longer measured: the caption of each, and the key that it needs."""
ARMS: Columns = (
    ("method", "arm", "{}"), (lambda row: row.get("init") or "–", "first drafts", "{}"),
    ("window", "L", "{}"), ("mode", "mode", "{}"), ("nfe", "NFE", "{:.1f}"),
    ("nfe_reduction", "fewer", "{:.2f}×"), ("decode_seconds", "decode s", "{:.2f}"),
    ("e2e_seconds", "e2e s", "{:.2f}"), ("decode_speedup", "speed-up", "{:.2f}×"),
    ("tokens_per_second", "tokens/s", "{:.0f}"), ("theory_speedup", "theory", "{:.2f}×"),
    ("share_of_theory", "of theory", "{:.0%}"), ("parity", "parity", "{}"),
)  # fmt: skip


def arms_of(kind: str) -> Callable[[Data], list[Data]]:
    """Make the rows of one kind's arms."""
    return lambda result: [arm for arm in result["arms"] if arm["kind"] == kind]


def _arms(kind: str, number: int) -> Table:
    def remark(result: Data) -> str:
        about, first = result[kind], arms_of(kind)(result)[0]
        return (
            f"{first['drawings']} drawing(s) of {about['new_tokens']} tokens an arm, guidance "
            f"{about['guidance']:g}; the same prompts and seeds, arms in turns. *Parity* is "
            "greedy, against the model's own `generate`; *theory* is what acceptance and step "
            "times allow."
        )

    return Table(f"{kind.capitalize()}s: speed (table {number})", arms_of(kind), ARMS, remark)


def _windows(kind: str, init: str) -> Callable[[Data], list[Data]]:
    """Make the points of arms that draft, from one start."""

    def rows(result: Data) -> list[Data]:
        arms = arms_of(kind)(result)
        return [arm for arm in arms if arm["window"] and arm.get("init") == init]

    return rows


def _figures(kind: str) -> tuple[Figure, ...]:
    near = "above" if kind == "image" else "previous-frame"
    return (
        Figure(
            f"{kind}-story",
            "The iteration that accepted each token, SJD and coupled draws on the same prompt, "
            f"from the same first drafts: {kind}",
            also=f" ([animation](figures/imagine-{kind}-story.webp))",
            needs=f"{kind}.story",
        ),
        Figure(
            f"{kind}-windows",
            f"Forwards and time over L (tables 1 and 2): {kind}",
            tuple(
                Panel(
                    _windows(kind, init), "window", key, f"window L, all from {init}", name,
                    by="method", log="xy",
                )
                for key, name in (
                    ("nfe", "forwards (NFE) a drawing"), ("decode_seconds", "decoding, seconds"),
                )
                for init in ("random", near)
            ),
            needs=lambda result: bool(_windows(kind, "random")(result)),
            columns=2,
        ),
        *(
            Figure(f"{kind}-{name}", f"{caption}: {kind}", needs=f"{kind}.study.{key}")
            for name, (caption, key) in STUDY.items()
        ),
    )  # fmt: skip


PAGE = Page(
    lambda result: f"Imagine: {result['model']}",
    (_arms("image", 1), _arms("video", 2)),
    (*_figures("image"), *_figures("video")),
    retired={
        "9362df8": (
            *(f"{kind}.{part}" for part in ("quality", "breakdown", "story") for kind in KINDS),
            "vocabulary",
        ),
        "157ecc9e": ("image.batch", "image.study", "video.study"),
    },
)
