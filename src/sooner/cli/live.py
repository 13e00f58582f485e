"""Live progress of a drawing: codes and steps, and on a terminal a preview of the picture."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.color import Color
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    import numpy as np

    from ..models import Canvas
    from ..tasks.imagine.progress import DrawingProgress

COLUMNS, LINES = 96, 16
"""Largest preview in a terminal; a line shows two rows of pixels."""

BAR_SHARE, PICTURE_SHARE, FIRST = 0.015, 0.03, 0.3
"""Share of the time that previews may take, and seconds before the first one."""

MARKS = (0.25, 0.5, 0.75)
"""Shares of the codes at which a line is printed where there is no terminal."""


DRAWS = ("draw", "compare")


class LivePreview:
    """Shows the progress of one batch.

    Args:
        console: where; progress goes to stderr.
        quiet: show nothing, but write `folder` still.
        folder: receives a PNG every `every` steps.
    """

    def __init__(
        self, console: Console, quiet: bool = False, folder: Path | None = None, every: int = 8
    ) -> None:
        self.console, self.quiet, self.folder, self.every = console, quiet, folder, every
        self.live: Live | None = None
        self.picture: RenderableType = Text()
        self._canvas: Canvas | None = None
        self._mark, self._saves = 0, False
        self._bar = Progress(
            BarColumn(),
            TextColumn("{task.completed} of {task.total} codes, {task.fields[steps]} steps"),
            TimeElapsedColumn(),
            console=console,
            auto_refresh=False,
        )

    def begin(self, canvas: Canvas) -> None:
        """A batch is to be drawn on `canvas`."""
        self._canvas = canvas

    def shows(self, name: str) -> bool:
        """Returns whether stage `name` is watched here, and needs no other progress."""
        return self._is_live and name in DRAWS

    def stage(self, name: str) -> None:
        """A stage of the job begins: of one that draws, the picture is watched anew."""
        from ..tasks.imagine.progress import TimeShare

        self.end()
        self._mark, self._saves = 0, name == "draw"
        self._bars, self._pictures = TimeShare(BAR_SHARE), TimeShare(PICTURE_SHARE, FIRST)

    def progress(self, progress: DrawingProgress) -> None:
        """A round is over."""
        self._save(progress)
        if self.quiet:
            return
        if not self.console.is_terminal:
            self._tell(progress)
            return
        if self._saves and self._pictures.due:
            with self._pictures.spend():
                self._look(progress)
                self._show(progress)
        elif self._bars.due:
            with self._bars.spend():
                self._show(progress)

    def end(self) -> None:
        """Take the live picture off the screen."""
        if self.live is not None:
            self.live.stop()
            self.live = None
        self.picture = Text()
        for task in list(self._bar.task_ids):
            self._bar.remove_task(task)

    @property
    def _is_live(self) -> bool:
        return self.console.is_terminal and not self.quiet

    def _look(self, progress: DrawingProgress) -> None:
        from ..tasks.imagine.progress import partial

        assert self._canvas is not None
        pixels = partial(self._canvas, progress)[:, -1]
        self.picture = _thumbnail(pixels, min(COLUMNS, self.console.width - 1))

    def _show(self, progress: DrawingProgress) -> None:
        if self.live is None:
            self._bar.add_task("", total=progress.total, steps=0)
            self.live = Live(console=self.console, auto_refresh=False, transient=True)
            self.live.start()
        task = self._bar.task_ids[0]
        self._bar.update(task, completed=progress.tokens, steps=progress.steps)
        self.live.update(Group(self._bar, self.picture), refresh=True)

    def _tell(self, progress: DrawingProgress) -> None:
        while self._mark < len(MARKS) and progress.tokens >= MARKS[self._mark] * progress.total:
            self._mark += 1
            if self._mark == len(MARKS) or progress.tokens < MARKS[self._mark] * progress.total:
                text = f"  {progress.tokens} of {progress.total} codes, {progress.steps} steps"
                self.console.print(Text(text))

    def _save(self, progress: DrawingProgress) -> None:
        if self.folder is None or self._canvas is None or not self._saves:
            return
        if progress.steps % self.every and progress.tokens < progress.total:
            return
        from ..tasks.imagine.progress import partial
        from ..tasks.imagine.writing import grid, write_png

        pixels = partial(self._canvas, progress)[:, -1]
        write_png(self.folder / f"step-{progress.steps:05d}.png", grid(pixels), {})


def _thumbnail(pixels: np.ndarray, columns: int) -> Text:
    """`[rows, height, width, 3]` side by side in half blocks, each cell two pixels."""
    import numpy as np
    from PIL import Image

    rows, height, width = pixels.shape[:3]
    tall = min(2 * LINES, height)
    wide = max(1, round(width * tall / height))
    limit = max(1, min(rows, columns // (wide + 1)))
    if wide > columns:
        tall, wide = max(2, tall * columns // wide), columns
    small = [
        np.asarray(Image.fromarray(frame).resize((wide, tall // 2 * 2), Image.Resampling.BOX))
        for frame in pixels[:limit]
    ]
    text = Text()
    for line in range(tall // 2):
        for picture in small:
            for upper, lower in zip(picture[2 * line], picture[2 * line + 1], strict=True):
                text.append("▀", Style(color=_color(upper), bgcolor=_color(lower)))
            text.append(" ")
        text.append("\n")
    return text


def _color(pixel: Any) -> Color:
    return Color.from_rgb(*map(int, pixel))
