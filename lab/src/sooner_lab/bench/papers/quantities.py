"""What figures are figures of: only figures of one quantity stand beside each other."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """What is counted.

    Attributes:
        told: in words.
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
