"""Where the time of one step goes: the rows of the paper's table 4.

The loop is left as it is. The pieces that a run is handed (its drafter, rule and processing) are
wrapped by a clock that counts every second once, in the innermost piece.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch

from sooner.decoding.acceptance import reject_chain
from sooner.decoding.loop import Rule
from sooner.decoding.noise import RowNoise
from sooner.decoding.tree import Tree
from sooner.methods import CoupledJacobi
from sooner.methods.context import Context
from sooner.methods.jacobi.couplings import COUPLINGS, Draws
from sooner.methods.jacobi.drafter import JacobiDrafter
from sooner.stats.run import Stats

from .arms import draw_beginning, draw_rows
from .settings import ImagineBenchSettings
from .speed import WARM, Progress
from .subjects import Subject

ROWS = ("preprocessing", "transformer", "logits", "sampling", "verification", "postprocessing")
"""Window and its bookkeeping; forward with embedding, heads and guidance; warpers and softmax; the
draws of the window; accepting drafts and the target's own token; commit, stopping, cache."""
VOCABULARY, WINDOW, REPEATS = 65_536, 64, 3


@dataclass
class Clock:
    """Seconds of each piece, without those of the pieces inside it."""

    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    now: Callable[[], float] = time.perf_counter
    _inside: float = 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """`function`, whose time is counted under `name`."""

        def wrapped(*args: Any, **kwargs: Any) -> Any:
            outside, self._inside = self._inside, 0.0
            start = self.now()
            try:
                return function(*args, **kwargs)
            finally:
                spent = self.now() - start
                self.seconds[name] += spent - self._inside
                self._inside = outside + spent

        return wrapped


def waiting_clock(device: torch.device) -> Callable[[], float]:
    """Seconds now, after the device has finished what it was given: pieces of a step are told apart
    at the price of the whole."""
    if device.type != "cuda":
        return time.perf_counter

    def now() -> float:
        torch.cuda.synchronize(device)
        return time.perf_counter()

    return now


@dataclass(frozen=True)
class TimedJacobi(CoupledJacobi):
    """The method itself, with its pieces on a clock."""

    clock: Clock = field(default_factory=Clock, repr=False, compare=False)

    def build(self, context: Context) -> tuple[JacobiDrafter, Rule]:
        clock, processing = self.clock, context.processing
        clock.now = waiting_clock(context.target.device)
        processing.scores = clock.timed("logits", processing.scores)  # type: ignore[method-assign]
        processing.probabilities = clock.timed(  # type: ignore[method-assign]
            "logits", processing.probabilities
        )
        drafter, rule = super().build(context)
        drafter.coupling = clock.timed("sampling", drafter.coupling)
        drafter.filling = clock.timed("sampling", drafter.filling)
        drafter.propose = clock.timed("preprocessing", drafter.propose)  # type: ignore[method-assign]
        return drafter, clock.timed("verification", rule)


def breakdown(
    subject: Subject, settings: ImagineBenchSettings, progress: Progress
) -> dict[str, Any]:
    """Milliseconds of each piece a step, for both couplings, at windows up to the paper's 64."""
    steps = []
    for window in [
        one for one in settings.jacobi_windows if one <= WINDOW
    ] or settings.jacobi_windows[:1]:
        for coupling in ("gumbel", "maximal"):
            progress(f"{subject.kind}, breakdown: {coupling} L={window}")
            steps.append(step(subject, coupling, window, settings.seed))
    return {"rows": list(ROWS), "steps": steps}


def step(subject: Subject, coupling: str, window: int, seed: int) -> dict[str, Any]:
    """Mean milliseconds of each piece over one drawing, the prefill not counted."""
    untimed = CoupledJacobi(window, coupling=coupling, verify="ratio")
    draw_beginning(subject, 0, untimed, seed, WARM)
    method = TimedJacobi(window, coupling=coupling, verify="ratio")
    drawing, _ = draw_rows(subject, [0], method, seed)
    pieces = split(drawing.stats, method.clock)
    total = sum(pieces.values())
    return {
        "coupling": coupling,
        "window": window,
        "milliseconds": pieces,
        "total": total,
        "sampling_share": (pieces["sampling"] + pieces["verification"]) / total,
        "overhead_share": 1 - pieces["transformer"] / total,
    }


def split(stats: Stats, clock: Clock) -> dict[str, float]:
    """Milliseconds a step of each of `ROWS`; what no clock saw is post-processing."""
    steps = sum(map(len, stats.verify_seconds.values()))
    seconds = {name: clock.seconds[name] for name in ROWS}
    seconds["transformer"] = stats.seconds["verify"]
    seconds["postprocessing"] = 0.0
    seconds["postprocessing"] = stats.decode_seconds - sum(seconds.values())
    return {name: 1000 * value / steps for name, value in seconds.items()}


@torch.inference_mode()
def large_vocabulary(seed: int) -> dict[str, Any]:
    """Median milliseconds of the pieces that grow with the vocabulary, on made-up logits."""
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(2, 1, 1 + WINDOW, VOCABULARY, generator=generator)
    q, p = logits.softmax(-1)  # [1, 1 + window, vocab] each
    tokens = torch.multinomial(q[0, :-1], 1, generator=generator).T  # [1, window]
    noise = RowNoise.start(seed, torch.zeros(1))
    draws = Draws(noise, torch.arange(WINDOW))
    tree = Tree.chain(tokens, [WINDOW], q)
    pieces: dict[str, Callable[[], Any]] = {
        "softmax": lambda: logits[0].softmax(-1),
        "verification": lambda: reject_chain(tree, p, noise),
    }
    for name, coupling in COUPLINGS.items():
        pieces[name] = lambda draw=coupling: draw(p[:, :-1], q[:, :-1], tokens, draws)  # type: ignore[misc]
    return {
        "vocabulary": VOCABULARY,
        "window": WINDOW,
        "milliseconds": {name: _median(piece) for name, piece in pieces.items()},
    }


def _median(piece: Callable[[], Any]) -> float:
    piece()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        piece()
        times.append(1000 * (time.perf_counter() - start))
    return median(times)
