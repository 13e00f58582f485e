"""What a person sees while a job runs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from ..checks import option
from ..errors import SoonerError, reason_of

Line = tuple[str, str]
"""Text and style."""

DRAFTED = "green"
"""Style of text whose tokens a draft proposed and the target accepted."""

STAGES = {
    "ray": "starting Ray", "load": "loading models", "decode": "decoding video",
    "encode": "decoding and encoding frames",
    "process": "preparing frames", "warm-up": "warming up", "prefill": "vision and prefill",
    "text-prefill": "prefill", "generate": "generating", "draw": "drawing",
    "pixels": "codes to pixels", "compare": "decoding plainly, to compare",
    "survey": "trying patterns, layer by layer", "trial": "measuring those that were found",
    "rollout": "rolling out", "score": "scoring", "pages": "parsing pages",
}  # fmt: skip


@dataclass
class Display:
    """Live progress on a terminal; plain lines where there is none.

    Attributes:
        quiet: no progress, no summary.
        debug: show tracebacks and decisions.
    """

    quiet: bool = option(False, names=("--quiet", "-q"))
    debug: bool = False

    def __post_init__(self) -> None:
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
            if text:
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

    def text_stage(self, name: str) -> None:
        """A stage begins of a prompt without pixels, whose prefill encodes none."""
        self.stage("text-prefill" if name == "prefill" else name)

    def advance(self, done: int, total: float) -> None:
        """`done` of the present stage's `total` steps are done."""
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], completed=done, total=total)

    def decoded(self, done: int, total: int) -> None:
        self.counted("encode" if self._stage == "encode" else "decode", done, total)

    def prefilled(self, done: int, total: int) -> None:
        self.counted("prefill", done, total)

    def counted(self, name: str, done: int, total: int) -> None:
        """Report steps of a stage, which may have begun before they were counted."""
        if self._progress is not None and self._progress.tasks[0].total is None:
            self.end_text()
        self.stage(name, total)
        self.advance(done, total)

    def generated(self, done: int, total: int) -> None:
        """Report new tokens; no progress bar where the text itself is streamed."""
        if self._stage == "compare":
            return
        if not self.out.is_terminal:
            self.stage("generate", total)
        elif self._stage != "generate":
            self.stop()
            self._stage = "generate"
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
                silence_libraries()
            yield

    @contextmanager
    def job(self) -> Iterator[None]:
        """Restores the terminal on leaving, after errors, too."""
        try:
            yield
        finally:
            self.end_text()


def silence_libraries() -> None:
    """Keep the libraries' own progress bars and warnings off the screen."""
    import huggingface_hub
    import transformers

    huggingface_hub.logging.set_verbosity_error()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def figures(values: Mapping[str, Any], *names: str) -> str:
    """Returns names and values in a line, such as `layers: 28, recall: 0.98`, without those that
    are `None` or empty; of `names`, or all."""
    parts = {name: values.get(name) for name in names or values}
    present = {name: item for name, item in parts.items() if item not in (None, [], {}, "")}
    return ", ".join(f"{name.replace('_', ' ')}: {_figure(item)}" for name, item in present.items())


def _figure(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if 1e-3 <= abs(value) < 1e3 else f"{value:.0f}"
    if isinstance(value, Mapping):
        return f"({figures(value)})"
    return "; ".join(map(_figure, value)) if isinstance(value, list) else str(value)


SPEEDUPS = {"e2e_speedup": "end to end", "draw_speedup": "drawing", "decode_speedup": "decoding"}


def comparison(record: Mapping[str, Any]) -> Line:
    """Returns how a method compares with plain decoding: speed-ups, where they may be claimed,
    parity, and the style that the verdict asks for."""
    from ..parity import Parity

    parity, agreement = record["parity"], record.get("agreement") or {}
    if isinstance(parity, Mapping):
        parity = str(Parity(**parity))
    elif parity is None:
        parity = f"not defined between samples or distributions (mode: {record['mode']})"
    speeds = [
        f"{record[name]:.2f}x {words}"
        for name, words in SPEEDUPS.items()
        if record.get(name) is not None
    ]
    speed = f"speed-up: {', '.join(speeds)}" if speeds else "no speed-up is claimed"
    is_bug = record["mode"] == "exact" and parity.startswith(("bug", "differs"))
    style = "bold green" if parity == "identical" else "bold red" if is_bug else "yellow"
    return ", ".join(filter(None, [speed, f"parity: {parity}", figures(agreement)])), style


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
        """Works on one input; an error is present and counted, and the block ends there."""
        try:
            with self.display.job():
                yield
        except BrokenPipeError:
            raise  # nobody reads any more
        except Exception as error:
            line = str(error)
            if not isinstance(error, SoonerError):
                if self.display.debug:
                    raise
                line = f"{name}: {type(error).__name__}: {reason_of(error)} (--debug shows where)"
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
