"""Pictures of the order in which tokens are accepted: a still, and an animation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from sooner.methods import CoupledJacobi
from sooner.methods.jacobi.drafter import Trace

from ..figures import save
from . import story
from .settings import ImagineBenchSettings
from .speed import Progress
from .story import ACCEPTED, DRAFT, DrawingHistory
from .subjects import Subject

PAPER, INK, PALE = 0.93, (40, 40, 40), 0.35
"""Grey of what is not there yet, colour of the text, and how much of a draft shows through."""
WIDTH, TITLE, GAP, PAUSE, LAST, COLOURS = 320, 22, 14, 80, 2500, 64
"""Pixels of a panel, its title and a gap; milliseconds of a frame and the last; colours in all."""


def tell(
    subject: Subject, settings: ImagineBenchSettings, progress: Progress
) -> dict[str, Any] | None:
    """Draw one prompt with SJD and with coupled draws, and write the pictures of both.

    Returns:
        The files' names and, for each arm, its forwards and the iteration of every place; `None`
        without a folder to write to.
    """
    if settings.figures is None:
        return None
    progress(f"{subject.kind}: story")
    window = settings.middle
    # Both from the start that `CoupledJacobi` has by default.
    sjd = CoupledJacobi(window, coupling="independent", trace=Trace())
    coupled = CoupledJacobi(window, coupling="gumbel", verify="ratio", trace=Trace())
    records = [
        story.record(subject, f"{name}, L = {window}", method, settings.seed)
        for name, method in (("SJD", sjd), ("coupled (Gumbel)", coupled))
    ]
    settings.figures.mkdir(parents=True, exist_ok=True)
    stem = settings.figures / f"imagine-{subject.kind}-story"
    files = write(subject, records, stem)
    return {
        "files": files,
        "arms": [
            {"name": one.name, "nfe": one.nfe, "accepted": one.accepted.tolist()} for one in records
        ],
    }


def write(subject: Subject, records: Sequence[DrawingHistory], stem: Path) -> list[str]:
    """Write `stem`.png and .webp; returns the files' names."""
    files = save(still(subject, records), stem)
    frames = animation(subject, records)
    path = stem.with_suffix(".webp")
    times = [PAUSE] * (len(frames) - 1) + [LAST]
    frames[0].save(
        path,
        save_all=True,
        append_images=frames[1:],
        duration=times,
        loop=0,
        lossless=True,
        method=3,  # a tenth of the size of what method 0 writes
    )
    return [*files, path.name]


def still(subject: Subject, records: Sequence[DrawingHistory]) -> Any:
    """Each arm's order of acceptance above what it drew, all on one scale of colours."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    longest = max(one.nfe for one in records)
    frames = subject.canvas.grid.frames
    stacked = frames > 1  # clips are wide: one arm under the other
    size = (11, 5.6) if stacked else (8.6, 7.8)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(*((4, 1) if stacked else (2, 2)), squeeze=False)
    for number, one in enumerate(records):
        pair = axes[2 * number : 2 * number + 2, 0] if stacked else axes[:, number]
        order = story.board(subject, one.accepted[None].astype(float))[0]
        order[order == 0] = np.nan  # what the prompt gave
        shown = pair[0].imshow(order, cmap="viridis", vmin=1, vmax=longest)
        title = f"{one.name}\n{one.nfe} forwards for {_new(one)} tokens"
        pair[0].set_title(title.replace("\n", ": ") if stacked else title)
        pair[1].imshow(story.pictures(subject, one.tokens[-1:])[0])
        for axis in pair:
            axis.set(xticks=[], yticks=[], facecolor="0.75")
            for latent in range(1, frames):
                width = axis.get_images()[0].get_array().shape[1] / frames
                axis.axvline(latent * width - 0.5, color="white", linewidth=1)
    label = "iteration that accepted the token" + (" (grey: given)" if stacked else "")
    figure.colorbar(shown, ax=axes, label=label, shrink=0.8, ticks=MaxNLocator(integer=True))
    return figure


def animation(subject: Subject, records: Sequence[DrawingHistory]) -> list[Image.Image]:
    """Frames in which both arms advance by one forward at a time; the slower one ends last."""
    longest = max(one.nfe for one in records)
    panels = [_panels(subject, one, longest) for one in records]
    frames = []
    for iteration in range(longest + 1):
        column = [side[min(iteration, len(side) - 1)] for side in panels]
        frames.append(_beside(column, stacked=subject.canvas.grid.frames > 1))
    # One palette for all, so that what stands still is stored once; drafts are in the middle.
    palette = _beside([frames[len(frames) // 2], frames[-1]], stacked=False).quantize(COLOURS)
    return [frame.quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames]


def _panels(subject: Subject, one: DrawingHistory, longest: int) -> list[Image.Image]:
    """One arm after each iteration: the tokens, the picture, and how far it is."""
    state = story.board(subject, one.state)
    when = story.board(subject, np.minimum(one.accepted[None], np.arange(one.nfe + 1)[:, None]))
    seen = story.pictures(subject, one.tokens)
    made = []
    for iteration in range(one.nfe + 1):
        tokens = fade(_colours(when[iteration], state[iteration], longest), state[iteration])
        picture = fade(seen[iteration], state[iteration])
        done = int((state[iteration] == ACCEPTED).sum())
        title = f"{one.name}: forward {iteration}, {done}/{state[iteration].size} tokens"
        made.append(_titled([tokens, picture], title))
    return made


def fade(colours: np.ndarray, state: np.ndarray) -> np.ndarray:
    """Accepted places solid, drafts faint, the rest paper.

    Args:
        colours: `[height, width, 3]`, 0 to 1, of any whole multiple of the board's size.
        state: `[rows, columns]`.
    """
    times = colours.shape[0] // state.shape[0], colours.shape[1] // state.shape[1]
    weight = np.choose(state, [0.0, PALE, 1.0])
    weight = np.kron(weight, np.ones(times))[..., None]
    return PAPER + weight * (colours - PAPER)


def _colours(when: np.ndarray, state: np.ndarray, longest: int) -> np.ndarray:
    """The order of acceptance as colours; drafts in orange, what the prompt gave in grey."""
    from matplotlib import colormaps

    colours = colormaps["viridis"](when / longest)[..., :3]
    colours[when == 0] = 0.75
    colours[state == DRAFT] = (0.84, 0.37, 0.0)
    return colours


def _titled(images: Sequence[np.ndarray], title: str) -> Image.Image:
    """Images of one width under each other, below a title."""
    scaled = [_enlarged(image) for image in images]
    height = TITLE + sum(image.height + GAP for image in scaled)
    sheet = Image.new("RGB", (scaled[0].width, height), "white")
    ImageDraw.Draw(sheet).text((2, 5), title, fill=INK)
    top = TITLE
    for image in scaled:
        sheet.paste(image, (0, top))
        top += image.height + GAP
    return sheet


def _enlarged(image: np.ndarray) -> Image.Image:
    height = round(WIDTH * image.shape[0] / image.shape[1])
    if image.shape[1] > 3 * image.shape[0]:  # a clip's frames side by side want more room
        return _resized(image, 2 * WIDTH, 2 * height)
    return _resized(image, WIDTH, height)


def _resized(image: np.ndarray, width: int, height: int) -> Image.Image:
    bytes_ = (image.clip(0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(bytes_).resize((width, height), Image.Resampling.NEAREST)


def _beside(panels: Sequence[Image.Image], stacked: bool) -> Image.Image:
    """Panels of one size side by side, or under each other, with a gap."""
    width, height = panels[0].size
    across, down = (1, len(panels)) if stacked else (len(panels), 1)
    sheet = Image.new("RGB", (across * (width + GAP) + GAP, down * (height + GAP)), "white")
    for number, panel in enumerate(panels):
        left, top = (0, number) if stacked else (number, 0)
        sheet.paste(panel, (GAP + left * (width + GAP), top * (height + GAP)))
    return sheet


def _new(one: DrawingHistory) -> int:
    return int((one.accepted > 0).sum())
