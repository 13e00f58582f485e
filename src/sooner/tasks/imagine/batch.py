"""Draws one batch, collects its codes round by round, and compares it with plain decoding."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ...drawing import Drawing, draw
from ...engine.acceptance import VerifyResult
from ...engine.grid import CODE
from ...engine.interface import Drafter
from ...engine.loop import Rule
from ...engine.noise import Purpose, RowNoise
from ...engine.row_sampling import RowParams
from ...engine.sampling import Processing
from ...engine.tree import Tree
from ...methods import Autoregressive, Method
from ...methods.context import Context
from ...models import Canvas
from ...parity import Parity, compare, rounding
from .settings import ImagineSettings

WARM_UP = 3
"""Decoding rounds of an untimed run."""

OnProgress = Callable[["DrawingProgress"], None]
"""Called with the progress after every round."""


@dataclass(frozen=True)
class DrawJob:
    """One batch that is to be drawn.

    Attributes:
        canvas: adapter of the model, with the layout of codes.
        inputs: the processed prompt, or the codes of a clip's beginning.
        settings: method, sampling and count.
        seed: of the random numbers.
    """

    canvas: Canvas
    inputs: Mapping[str, Any]
    settings: ImagineSettings
    seed: int


class DrawingProgress:
    """Collects codes as they are committed, as the `on_tokens` of a run.

    Args:
        work: what is drawn.
        on_progress: called after every round.

    Attributes:
        output: ids generated for each picture.
        steps: rounds so far, each of them one target forward.
    """

    def __init__(self, work: DrawJob, on_progress: OnProgress = lambda progress: None) -> None:
        self.grid, count = work.canvas.grid, work.settings.count
        self.output: list[list[int]] = [[] for _ in range(count)]
        self.steps = 0
        self._on_progress = on_progress
        self._last = count  # within a round, rows come in ascending order

    def add(self, row: int, tokens: list[int], drafted: int) -> None:
        """Take new ids of picture `row`."""
        if row <= self._last:
            self.report()
            self.steps += 1
        self._last = row
        self.output[row] += tokens

    def report(self) -> None:
        """Reports the rounds so far."""
        if self.steps:
            self._on_progress(self)

    @property
    def tokens(self) -> int:
        """Returns the new codes of all pictures."""
        return sum(map(len, self.output))

    @property
    def total(self) -> int:
        """Returns the new codes of all finished pictures."""
        return self.grid.left * len(self.output)

    def codes(self, row: int) -> int:
        """Returns how many codes of a picture there are, those of the prompt among them."""
        known = self.grid.prefix + len(self.output[row])
        return int((self.grid.kinds()[:known] == CODE).sum())


@dataclass(frozen=True)
class DrawCallbacks:
    """Functions called while a batch is drawn; each may be left out.

    Attributes:
        on_decode: `(frames decoded, frames to decode)` of a clip.
        on_stage: the stage that begins: `process`, `warm-up`, `draw`, `pixels`, `compare`.
        on_canvas: the canvas, before anything is drawn on it.
        on_progress: what is drawn so far, after every round.
    """

    on_decode: Callable[[int, int], None] = lambda done, total: None
    on_stage: Callable[[str], None] = lambda name: None
    on_canvas: Callable[[Canvas], None] = lambda canvas: None
    on_progress: OnProgress = lambda progress: None


def draw_batch(work: DrawJob, method: Method, progress: DrawingProgress) -> Drawing:
    """Returns the drawn batch.

    Raises:
        SoonerError: as `sooner.draw`.
    """
    drawing = draw(
        work.canvas, work.inputs, method, count=work.settings.count, seed=work.seed,
        on_tokens=progress.add, **work.settings.sampling_options(),
    )  # fmt: skip
    progress.report()
    return drawing


class _EnoughError(Exception):
    """Ends a drawing before it is whole."""


def warm_up(work: DrawJob, *methods: Method) -> None:
    """Runs a few rounds of each method: first forwards pay for allocations and kernel choices."""
    for method in methods:
        draw_rounds(work, method, WARM_UP)


def draw_rounds(work: DrawJob, method: Method, last: int) -> None:
    """Runs round `last`, counted from 0, and those before it."""

    def leave(progress: DrawingProgress) -> None:
        if progress.steps > last:
            raise _EnoughError

    with suppress(_EnoughError):
        draw_batch(work, method, DrawingProgress(work, leave))


def compare_plain(
    work: DrawJob, made: Drawing, method: Method, on_progress: OnProgress
) -> dict[str, Any]:
    """Decode the same batch plainly, and compare both.

    Returns:
        `decode_speedup`, `draw_speedup` (prefill included), `step_compression` as measured,
        `plain` (its figures), and `parity`. That is `None` where both are draws of one
        distribution and not the same draw. Speed-ups are `None` when parity says *bug*.
    """
    reference = plain_for(work, method)
    plain = draw_batch(work, reference, DrawingProgress(work, on_progress))
    is_same_draw = work.settings.greedy or reference.shared_noise
    parity = check(work, plain, made, reference) if is_same_draw else None
    is_red = parity is not None and not parity.ok
    speeds = plain.stats.tokens_per_second, made.stats.tokens_per_second
    seconds = plain.stats.total_seconds, made.stats.total_seconds
    return {
        "decode_speedup": speeds[1] / speeds[0] if all(speeds) and not is_red else None,
        "draw_speedup": seconds[0] / seconds[1] if all(seconds) and not is_red else None,
        "step_compression": plain.stats.nfe / made.stats.nfe,
        "plain": {
            "nfe": plain.stats.nfe,
            "tokens_per_second": speeds[0],
            "seconds": dict(plain.stats.seconds),
        },
        "parity": None if parity is None else parity.as_dict(),
    }


def plain_for(work: DrawJob, method: Method) -> Autoregressive:
    """Returns plain decoding that draws with the same noise, if the method draws with one."""
    by_noise = not work.settings.greedy and getattr(method, "judges_by_noise", False)
    return Autoregressive(shared_noise=by_noise)


def check(work: DrawJob, plain: Drawing, made: Drawing, reference: Autoregressive) -> Parity:
    """Returns the worst parity of the rows; where they differ, a run that keeps scores tells."""
    prefix = work.canvas.grid.prefix
    pairs = list(
        zip(plain.tokens[:, prefix:].tolist(), made.tokens[:, prefix:].tolist(), strict=True)
    )
    divergences = (compare(*pair).divergence for pair in pairs)
    places = frozenset(place for place in divergences if place is not None)
    if not places:
        return Parity("identical")
    recorded = RecordedPlain(reference.shared_noise, work.canvas.dtype, places)
    draw_rounds(work, recorded, max(places))
    results = [recorded.compare(row, first, other) for row, (first, other) in enumerate(pairs)]
    return max(results, key=lambda parity: ("identical", "tie", "bug").index(parity.verdict))


class PlainStep(NamedTuple):
    """What one step of plain decoding has.

    Attributes:
        raw: `[rows, vocab]`, fp32: logits after guidance and the grid, before any processor.
        waits: `[rows, vocab]`: noise of each row's next position; `None` if greedy.
        params: of the rows; they make a distribution of the logits.
        spread: factor by which guidance amplifies rounding errors of the logits it combines.
    """

    raw: Tensor
    waits: Tensor | None
    params: tuple[RowParams, ...]
    spread: float


@dataclass(frozen=True)
class RecordedPlain(Autoregressive):
    """Plain decoding that keeps the scores of steps.

    Attributes:
        dtype: the model's, by which ties are weighed.
        places: steps that are kept, since all of them are gigabytes; `None` keeps all.
        steps: by place.
    """

    dtype: torch.dtype = torch.float32
    places: frozenset[int] | None = None
    steps: dict[int, PlainStep] = field(default_factory=dict, compare=False, repr=False)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        drafter, inner = super().build(context)
        processing = context.processing
        params = tuple(processing.params_of(row) for row in range(context.rows.batch))
        raws, numbers = list[Tensor](), itertools.count()
        processing.watch(lambda prefix, logits: raws.append(logits.clone()))
        is_drawn = self.shared_noise and processing.do_sample
        # `g cond - (g - 1) uncond`, whose roundings have nothing to do with each other.
        spread = math.hypot(context.guidance, context.guidance - 1)

        def keep(
            tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise
        ) -> VerifyResult:
            place, raw, waits = next(numbers), raws.pop(), None
            if self.places is None or place in self.places:
                if is_drawn:
                    waits = noise.waiting(Purpose.GUMBEL, 0, scores.shape[-1])[:, 0]
                self.steps[place] = PlainStep(raw, waits, params, spread)
            return inner(tree, scores, processing, noise)

        return drafter, keep

    def compare(self, row: int, reference: list[int], candidate: list[int]) -> Parity:
        """Weigh the first difference of two drawings of a row.

        It is a *tie* if plain decoding would have chosen the other token by logits that differ from
        its own by no more than rounding explains: half of it taken from the one, half given to the
        other. A top-k or top-p that cuts between the two is thereby weighed, too.
        """
        result = compare(reference, candidate)
        if result.divergence is None or result.reference is None or result.candidate is None:
            return result
        raw, waits, params, spread = self.steps[result.divergence]

        def deciding(logits: Tensor) -> Tensor:  # its argmax is the next token
            scores = Processing([params[row]]).scores(logits[None, None])[0, 0]
            return scores if waits is None else scores.log_softmax(-1) - waits[row].log()

        finite = raw[row][raw[row].isfinite()]
        tolerance = spread * rounding(self.dtype, float(finite.abs().max()))
        shaken = raw[row].clone()
        shaken[result.reference] -= tolerance / 2
        shaken[result.candidate] += tolerance / 2
        decider = deciding(raw[row])
        best, second = decider.topk(2).values.tolist()
        return replace(
            result, verdict="tie" if int(deciding(shaken).argmax()) == result.candidate else "bug",
            gap=best - float(decider[result.candidate]), top2_gap=best - second,
            tolerance=tolerance,
        )  # fmt: skip
