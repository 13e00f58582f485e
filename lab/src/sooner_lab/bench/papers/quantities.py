"""What figures are figures of, how ours come about, and why there is none.

Only figures of one quantity stand beside each other.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """What is counted.

    Attributes:
        report: in words.
        form: how a figure of it is written.
        of_its_run: a ratio or a count that another machine or data set does not rescale.
    """

    report: str
    form: str
    of_its_run: bool = True


QUANTITIES: dict[str, Quantity] = {
    "round": Quantity("tokens a round, the target's own included", "{:.2f}"),
    "run": Quantity("draft tokens between two rejections", "{:.2f}"),
    "aal": Quantity("accepted draft tokens a verification of the page", "{:.2f}"),
    "accepted": Quantity("accepted draft tokens behind a position", "{:.2f}"),
    "decode": Quantity("decoding speed over plain decoding, drafting included", "{:.2f}×"),
    "e2e": Quantity("speed from input to output over plain decoding", "{:.2f}×"),
    "layer": Quantity("speed of one attention over dense attention", "{:.2f}×"),
    "prefill": Quantity("speed of a whole prefill over a dense one", "{:.2f}×"),
    "forward": Quantity("speed of a forward over the same without", "{:.2f}×"),
    "fewer": Quantity("forwards of plain decoding over the arm's", "{:.2f}×"),
    "speed ratio": Quantity("a target step over a draft step", "{:.1f}"),
    "agreement": Quantity("tokens that the full target would say, of 100", "{:.1f}%"),
    "share": Quantity("share of 100", "{:.1f}%"),
    "window share": Quantity("accepted share of a window", "{:.2f}"),
    "acceptance": Quantity("acceptance rate of a place", "{:.2f}"),
    "recall": Quantity("attention that a pattern keeps", "{:.2f}"),
    "forwards": Quantity("forwards of a drawing", "{:.1f}", of_its_run=False),
    "seconds": Quantity("seconds", "{:.2f} s", of_its_run=False),
    "milliseconds": Quantity("milliseconds", "{:.2f} ms", of_its_run=False),
    "gigabytes": Quantity("memory at its peak", "{:.2f} GB", of_its_run=False),
    "rate": Quantity("tokens a second", "{:.2f}", of_its_run=False),
    "score": Quantity("quality, by the score of its data set", "{:.2f}", of_its_run=False),
    "success": Quantity("episodes that succeed, of 100", "{:.0f}%", of_its_run=False),
    "frames": Quantity("frames", "{:.0f}", of_its_run=False),
}

ANALYTIC = "analytic"
REGIMES = {
    "real": "weights and texts that others made, on two CPU cores",
    "trained": "models trained here, all of the method at work, on two CPU cores",
    "replay": "real decoders, drafts and clocks; a script says which tokens the target wants",
    "planted": "one layer on states made with the structure that is looked for",
    "law": "codes drawn from a law in closed form; nothing is trained",
    ANALYTIC: "calculated from the paper's own step times and run lengths: a test of our model of "
    "the pipeline, not of our speed",
    "gpu": "kernels and models on a GPU",
}
"""How our figures come about."""

NOT_YET = "not measured yet"
DIRTY = "not of a clean revision"
NO_FIGURE = "no figure at the key"
REASONS = (
    "needs a GPU", "needs the published checkpoints", NOT_YET, "not comparable",
    "repeats another table", DIRTY, NO_FIGURE, "too small a run",
)  # fmt: skip
"""Why a row has no figure of ours."""
