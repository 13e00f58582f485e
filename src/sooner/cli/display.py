"""What a person sees while a job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..errors import SoonerError, reason_of

Line = tuple[str, str]
"""Text and style."""

DRAFTED = "green"
"""Style of text whose tokens a draft proposed and the target accepted."""

STAGES = {
    "ray": "starting Ray",
    "load": "loading models",
    "decode": "decoding video",
    "process": "preparing frames",
    "warm-up": "warming up",
    "prefill": "vision and prefill",
    "generate": "generating",
    "draw": "drawing",
    "pixels": "codes to pixels",
    "compare": "decoding plainly, to compare",
    "survey": "trying patterns, layer by layer",
    "trial": "measuring those that were found",
    "rollout": "rolling out",
    "score": "scoring",
    "pages": "parsing pages",
}


class Display:
    """Live progress on a terminal; plain lines where there is none.

    Args:
        quiet: show the text alone.
        debug: let unexpected errors through, and the libraries' own warnings and progress.
    """

    def __init__(self, quiet: bool = False, debug: bool = False) -> None:
        self.quiet, self.debug = quiet, debug
        self.out = Console(file=sys.stdout, highlight=False, soft_wrap=True)
        self.err = Console(file=sys.stderr, highlight=False, soft_wrap=True)
        self._progress: Progress | None = None
        self._stage = ""
        self._midline = False

    def line(self, text: str, style: str = "") -> None:
        """Writes a line to stderr, above live progress; `quiet` leaves it out."""
        if not self.quiet:
            self.err.print(Text(text, style=style))

    def lines(self, lines: Iterable[Line]) -> None:
        """Writes lines of a summary, indented."""
        for text, style in lines:
            self.line(f"  {text}", style)

    def notes(self, notes: Iterable[str]) -> None:
        """Writes what a user should know about a result."""
        self.lines((note, "yellow") for note in notes)

    def error(self, text: str) -> None:
        """Writes a line to stderr, always."""
        self.err.print(Text(f"sooner: {text}", style="red"))

    def stage(self, name: str, total: float | None = None) -> None:
        """A stage begins; `total` of its steps, if they can be counted."""
        if self.quiet or name == self._stage:
            return
        self.end_text()  # live progress would be drawn over a line that was begun
        self._stage = name
        if not self.err.is_terminal:
            self.err.print(Text(f"  {STAGES[name]} ..."))
            return
        columns = [SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()]
        if total is not None:
            columns[2:2] = [BarColumn(), TextColumn("{task.completed}/{task.total}")]
        self._progress = Progress(*columns, console=self.err, transient=True)
        self._progress.start()
        self._progress.add_task(STAGES[name], total=total)

    def advance(self, done: int, total: float) -> None:
        """`done` of the present stage's `total` steps are done."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def decoded(self, done: int, total: int) -> None:
        self.stage("decode", total)
        self.advance(done, total)

    def generated(self, done: int, total: int) -> None:
        """Report new tokens; no progress bar where the text itself is streamed."""
        if self._stage == "compare" or self.quiet:
            return
        if self._stage != "generate":
            self.stop()
            self._stage = "generate"
            if not self.out.is_terminal:
                self._stage = ""
                self.stage("generate", total)
        self.advance(done, total)

    def text(self, piece: str, drafted: bool) -> None:
        """A piece of generated text, tinted if it was drafted, exactly as it is in a pipe."""
        if self.out.is_terminal:
            self.stop()
            self.out.print(Text(piece, style=DRAFTED if drafted else ""), end="")
        else:
            sys.stdout.write(piece)
        sys.stdout.flush()
        self._midline = True

    def stop(self) -> None:
        """Stop the live progress display, and end an unfinished line of text."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def end_text(self) -> None:
        """End the line of a text, if one was begun."""
        self.stop()
        self._stage = ""
        if self._midline:
            sys.stdout.write("\n")
            sys.stdout.flush()
        self._midline = False

    @contextmanager
    def loading(self) -> Iterator[None]:
        """Shows that models are loaded, and keeps the libraries' own progress bars and warnings off
        the screen, but for `debug`."""
        with self.job():
            self.stage("load")
            if not self.debug:
                hush()
            yield

    @contextmanager
    def job(self) -> Iterator[None]:
        """Restores the terminal on leaving, after errors, too."""
        try:
            yield
        finally:
            self.end_text()


def hush() -> None:
    """Keep the libraries' own progress bars and warnings off the screen."""
    import huggingface_hub
    import transformers

    huggingface_hub.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def figures(values: Mapping[str, Any]) -> str:
    """Returns names and values in a line, such as `layers 28, recall 0.98`, without those that are
    `None` or empty."""
    parts = []
    for name, value in values.items():
        if value is None or value in ([], {}):
            continue
        text = f"{value:.3g}" if isinstance(value, float) else str(value)
        if isinstance(value, list):
            text = "; ".join(map(str, value))
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)


def comparison_line(gain: str | None, note: str, style: str | None = None) -> Line:
    """Returns how a method compares with plain decoding.

    Args:
        gain: the speed-up; `None` where none may be claimed.
        note: on parity, such as `parity: identical`.
        style: of the line; by default what the verdict at the note's end asks for.
    """
    if style is None:
        word = note.partition("parity: ")[2].split(" ")[0]
        style = {"identical": "bold green", "tie": "yellow"}.get(word, "bold red")
    if gain is None:
        return f"{note}; no speed-up is claimed", style
    return f"speed-up: {gain}, {note}", style


class Tally:
    """Counts the inputs of one command; an error in one of them does not stop the others.

    Args:
        display: shows headings and errors.
        verb: what happens to an input, such as `videos captioned`.

    Attributes:
        total: inputs in all.
        done, skipped, failed: of these so far.
    """

    def __init__(self, display: Display, verb: str) -> None:
        self.display, self.verb = display, verb
        self.total = self.done = self.skipped = self.failed = 0

    @contextmanager
    def attempt(self, name: str) -> Iterator[None]:
        """Works on one input; an error is shown and counted, and the block ends there."""
        try:
            with self.display.job():
                yield
        except SoonerError as error:
            self.fail(str(error))
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:
            if self.display.debug:
                raise
            message = f"{type(error).__name__}: {reason_of(error)}"
            self.fail(f"{name}: {message} (--debug shows where)")

    def fail(self, line: str) -> None:
        """Show and count an error."""
        self.failed += 1
        self.display.error(line)

    def skip(self, what: str) -> None:
        """Count an input whose result is there already."""
        self.skipped += 1
        self.display.line(f"  done before{what}; --overwrite redoes it")

    def __str__(self) -> str:
        text = f"{self.done} of {self.total} {self.verb}"
        text += f", {self.skipped} done before" if self.skipped else ""
        return text + (f", {self.failed} failed" if self.failed else "")
