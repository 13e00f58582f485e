"""The page of `sooner bench imagine`: SCD's tables 1, 2 and 4, and its figures 3 to 6."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..declared import Data
from ..plots import Figure, Panel
from ..render import Columns, Page, ReportTable, Table, cell

KINDS = ("image", "video")
ARMS: Columns = (
    ("method", "arm", "{}"), (lambda row: row.get("init") or "–", "first drafts", "{}"),
    ("window", "L", "{}"), ("mode", "mode", "{}"), ("nfe", "NFE", "{:.1f}"),
    ("nfe_reduction", "fewer", "{:.2f}×"), ("decode_seconds", "decode s", "{:.2f}"),
    ("e2e_seconds", "e2e s", "{:.2f}"), ("decode_speedup", "speed-up", "{:.2f}×"),
    ("tokens_per_second", "tokens/s", "{:.0f}"), ("theory_speedup", "theory", "{:.2f}×"),
    ("share_of_theory", "of theory", "{:.0%}"), ("parity", "parity", "{}"),
)  # fmt: skip
PIECES = {
    "preprocessing": "preprocessing (window)",
    "transformer": "transformer forward",
    "logits": "logit processing",
    "sampling": "draws of the window",
    "verification": "verification (MRS)",
    "postprocessing": "post-processing",
}


def arms_of(kind: str) -> Callable[[Data], list[Data]]:
    """Make the rows of one kind's arms."""
    return lambda result: [arm for arm in result["arms"] if arm["kind"] == kind]


def _arms(kind: str, number: int) -> Table:
    def remark(result: Data) -> str:
        about, first = result[kind], arms_of(kind)(result)[0]
        text = (
            f"{first['drawings']} drawing(s) of {about['new_tokens']} tokens an arm, guidance "
            f"{about['guidance']:g}; the same prompts and seeds, arms in turns. *Parity* is "
            "greedy, against the model's own `generate`; *theory* is what acceptance and step "
            "times allow."
        )
        if about.get("batch"):
            text += (
                " Batch of {rows} at L = {window} (Gumbel): {tokens_per_second:.0f} tokens/s "
                "against {tokens_per_second_1:.0f} for one, {speedup:.2f}×."
            ).format(**about["batch"])
        return text

    return Table(f"{kind.capitalize()}s: speed (table {number})", arms_of(kind), ARMS, remark)


def _quality(kind: str) -> Callable[[Data], list[ReportTable]]:
    def tables(result: Data) -> list[ReportTable]:
        quality = result.get(kind, {}).get("quality")
        if not quality:
            return []
        names = sorted({name for arm in quality["arms"] for name in arm["accuracy"]})
        rows = [
            [arm["method"], f"{arm['nfe']:.1f} ± {arm['nfe_deviation']:.1f}"]
            + [cell(arm["accuracy"].get(name), "{:.3f}") for name in names]
            + [cell(arm.get("frechet"), "{:.3f}")]
            + [
                cell(arm.get(f"{name}_test", {}).get("p"), "{:.3f}")
                for name in ("features", "codes")
            ]
            for arm in [*quality["arms"], *quality.get("power", [])]
        ]
        heads = ["arm", "NFE", *names, "Fréchet to plain", "p (features)", "p (codes)"]
        missed = [each["method"] for each in quality.get("power", []) if not each["rejected"]]
        remark = (
            f"{quality['drawings']} drawings an arm at L = {quality['window']}. *plain again* is "
            "plain "
            "decoding with other seeds. p: permutation tests that one distribution explains both "
            "sets."
        )
        if missed:
            remark += (
                " **The tests have no power to tell small differences**: they do not reject "
                f"{' and '.join(missed)}, which is drawn from another distribution. So a high p is "
                "no evidence that an arm is exact; the [canvas study](canvas.md) tests it."
            )
        return [ReportTable(f"{kind.capitalize()}s: quality", heads, rows, remark)]

    return tables


def _breakdown(kind: str) -> Callable[[Data], list[ReportTable]]:
    def tables(result: Data) -> list[ReportTable]:
        breakdown = result.get(kind, {}).get("breakdown")
        if not breakdown:
            return []
        steps = breakdown["steps"]
        heads = [
            "milliseconds a step",
            *(f"{step['coupling']} L={step['window']}" for step in steps),
        ]
        rows = [
            [PIECES[name], *(f"{step['milliseconds'][name]:.2f}" for step in steps)]
            for name in breakdown["rows"]
        ]
        rows += [
            ["**step**", *(f"{step['total']:.2f}" for step in steps)],
            ["draws and verification", *(f"{step['sampling_share']:.1%}" for step in steps)],
            ["outside the transformer", *(f"{step['overhead_share']:.1%}" for step in steps)],
        ]
        return [ReportTable(f"{kind.capitalize()}s: one step (table 4)", heads, rows)]

    return tables


def _inits(kind: str) -> Table:
    return Table(
        f"{kind.capitalize()}s: first drafts",
        lambda result: sorted(
            (result.get(kind, {}).get("study") or {}).get("inits", []), key=lambda row: row["nfe"]
        ),
        (
            ("init", "first draft of both", "{}"), ("nfe", "NFE, Gumbel coupling", "{:.1f}"),
            ("sjd_nfe", "NFE, SJD", "{:.1f}"),
            (
                lambda row: row["sjd_nfe"] / row["nfe"] if "sjd_nfe" in row else None,
                "SJD over Gumbel", "{:.2f}×",
            ),
        ),
        lambda result: "L = {window}, {drawings} drawings each.".format(**result[kind]["study"]),
    )  # fmt: skip


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
        ),
        Figure(
            f"{kind}-trajectories",
            f"Acceptance rate of a place over its iterations (figure 3): {kind}",
            needs=f"{kind}.study.trajectories.sjd.lines",
        ),
        Figure(
            f"{kind}-collision",
            f"Collision probability against total variation (figure 4): {kind}",
            needs=f"{kind}.study.collisions.sjd.points",
        ),
        Figure(
            f"{kind}-strength",
            f"Coupling strength (figure 5): {kind}",
            (
                Panel(
                    f"{kind}.study.strengths", "hamming.1", "nfe", "drafts changed by an iteration",
                    "forwards (NFE) a drawing", by="coupling",
                ),
                Panel(
                    f"{kind}.study.strengths", "strength", "nfe", "coupling strength α",
                    "forwards (NFE) a drawing", by="coupling",
                ),
            ),
        ),
        Figure(
            f"{kind}-hamming",
            f"Drafts changed after N iterations (figure 6): {kind}",
            tuple(
                Panel(
                    f"{kind}.study.strengths", "strength", f"hamming.{reach}",
                    "coupling strength α", f"drafts changed, N = {reach}, %", by="coupling",
                    scale=100,
                )
                for reach in (1, 2, 3)
            ),
            size=(3.6, 3.6),
        ),
    )  # fmt: skip


def _of_kind(kind: str, number: int) -> tuple[Any, ...]:
    return _arms(kind, number), _quality(kind), _breakdown(kind), _inits(kind)


PAGE = Page(
    lambda result: f"Imagine: {result['model']}",
    (
        *_of_kind("image", 1),
        *_of_kind("video", 2),
        Table(
            "Sampling at a vocabulary of 65,536, L = 64",
            lambda result: [
                {"piece": name, "value": value}
                for name, value in (result.get("vocabulary") or {}).get("milliseconds", {}).items()
            ],
            (("piece", "piece", "{}"), ("value", "milliseconds", "{:.1f}")),
            "Made-up logits on this machine: what a step would pay beside its forward.",
        ),
    ),
    (*_figures("image"), *_figures("video")),
    retired=(
        *(f"{kind}.{part}" for part in ("quality", "breakdown", "story") for kind in KINDS),
        "vocabulary",
    ),
    stem="imagine",
)
