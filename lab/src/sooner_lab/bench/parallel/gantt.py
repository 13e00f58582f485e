"""Draft and target side by side: the forwards of one real run on one time line."""

from __future__ import annotations

from typing import Any

Data = dict[str, Any]

COLOURS = {
    "vision": "#E69F00",
    "prefill": "#0072B2",
    "rank": "#000000",
    "verify": "#56B4E9",
    "wait": "#DDDDDD",
    "right": "#009E73",
    "wrong": "#D55E00",
}
LABELS = {
    "vision": "vision",
    "prefill": "prefill",
    "rank": "ranking",
    "verify": "verifying",
    "wait": "waiting for drafts",
    "right": "drafting: token stands",
    "wrong": "drafting: thrown away",
}
ROUNDS = 14
"""Verifications that the lower panel shows."""


def gantt(result: Data) -> Any:
    """The whole run above; its prefill's end and first rounds below, large enough to read."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    run = next(one for one in result["timeline"] if "target" in one)
    figure = Figure(figsize=(11, 4.4), layout="constrained")
    figure.suptitle(
        f"One run of parallel decoding: {run['new_tokens']} tokens, α {run['alpha']:g}",
        fontsize=11,
    )
    whole, part = figure.subplots(2, 1)
    begin, end = _excerpt(run)
    for axis, limits in ((whole, (0.0, run["phases"]["whole"])), (part, (begin, end))):
        _lanes(axis, run, limits)
    whole.axvspan(1e3 * begin, 1e3 * end, color="black", alpha=0.07, linewidth=0)
    whole.set_title("whole run; the shaded part is below", fontsize=9, loc="left")
    _counts(part, run, (begin, end))
    part.set_title("numbers: draft tokens verified → accepted", fontsize=9, loc="left")
    part.set_xlabel("milliseconds since generation began")
    present = _present(run)
    patches = [Patch(color=COLOURS[name], label=LABELS[name]) for name in LABELS if name in present]
    figure.legend(handles=patches, fontsize=8, ncols=len(patches), loc="outside lower center")
    return figure


def _excerpt(run: Data) -> tuple[float, float]:
    """Seconds from a little before the end of the target's prefill to the end of some rounds."""
    prefill = next(event for event in run["target"] if event["kind"] == "prefill")
    steps = [event for event in run["target"] if event["kind"] == "step"][:ROUNDS]
    end = steps[-1]["end"] if steps else prefill["end"]
    return prefill["end"] - 0.15 * (end - prefill["end"]), end


def _name(event: Data) -> str:
    """What an event is drawn as."""
    if "right" in event:
        if event["kind"] == "step":
            return "right" if event["right"] else "wrong"
        return event["kind"]
    return "verify" if event["kind"] == "step" else event["kind"]


def _lanes(axis: Any, run: Data, limits: tuple[float, float]) -> None:
    for lane, side in ((1, "target"), (0, "draft")):
        for event in run[side]:
            if event["end"] < limits[0] or event["start"] > limits[1]:
                continue
            name = _name(event)
            axis.broken_barh(
                [(1e3 * event["start"], 1e3 * (event["end"] - event["start"]))],
                (lane - 0.36, 0.72),
                facecolor=COLOURS[name],
                edgecolor="white",
                linewidth=0.3,
                zorder=3 if name == "rank" else 2,  # ranking lies within the prefill
            )
    axis.set_yticks([0, 1], ["draft", "target"])
    axis.set_ylim(-0.5, 1.5)
    axis.set_xlim(1e3 * limits[0], 1e3 * limits[1])
    axis.spines[["top", "right"]].set_visible(False)


def _counts(axis: Any, run: Data, limits: tuple[float, float]) -> None:
    """Above each verification: drafts in it, and how many were accepted."""
    steps = [event for event in run["target"] if event["kind"] == "step"]
    for event, (_, _, good) in zip(steps, run["commits"][1:], strict=False):
        middle = (event["start"] + event["end"]) / 2
        if limits[0] <= middle <= limits[1]:
            told = f"{event['entries'] - 1}→{good}"
            axis.annotate(told, (1e3 * middle, 1.4), fontsize=7, ha="center")


def _present(run: Data) -> set[str]:
    return {_name(event) for side in ("target", "draft") for event in run[side]}
