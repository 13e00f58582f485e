"""Plain drawing beside a method, in the same process: how much sooner, and is it the same?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ...decoding.acceptance import Verdict
from ...decoding.loop import Rule
from ...decoding.noise import waiting
from ...decoding.parity import Parity, compare
from ...decoding.tree import Tree
from ...drawing import Drawing
from ...methods import Autoregressive, Method
from ...methods.context import Context
from ..comparison import plain_data
from .painting import Work, paint
from .sketch import OnProgress


def compare_plain(
    work: Work, made: Drawing, method: Method, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Draw the same batch plainly, and set both side by side.

    Returns:
        `decode_speedup`, `draw_speedup` (prefill included), `step_compression` as measured,
        `plain` (its figures), and `parity`. That is `None` where both are draws of one
        distribution and not the same draw. Speed-ups are `None` when parity says *bug*.
    """
    reference = plain_for(work, method)
    plain, _ = paint(work, reference, on_progress)
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
        "parity": None if parity is None else plain_data(parity),
    }


def plain_for(work: Work, method: Method) -> Autoregressive:
    """Plain decoding that draws with the same noise, if the method draws with one."""
    by_noise = not work.settings.greedy and getattr(method, "judges_by_noise", False)
    return Autoregressive(shared_noise=by_noise)


def check(work: Work, plain: Drawing, made: Drawing, reference: Autoregressive) -> Parity:
    """The worst parity of the rows; only a difference costs a run that keeps scores."""
    given = work.canvas.grid.given
    pairs = list(
        zip(plain.tokens[:, given:].tolist(), made.tokens[:, given:].tolist(), strict=True)
    )
    if all(compare(*pair).verdict == "identical" for pair in pairs):
        return Parity("identical")
    witness = Witness(shared_noise=reference.shared_noise, dtype=work.canvas.dtype)
    paint(work, witness)
    found = [
        compare(one, other, [step[row] for step in witness.kept])
        for row, (one, other) in enumerate(pairs)
    ]
    return max(found, key=lambda parity: ("identical", "tie", "bug").index(parity.verdict))


@dataclass(frozen=True)
class Witness(Autoregressive):
    """Plain decoding that keeps what decided each step.

    Attributes:
        dtype: the model's, by which ties are weighed.
        kept: one `[rows, vocab]` a step: the processed scores, with the noise of the place where
            tokens are drawn by it.
    """

    dtype: torch.dtype = torch.float32
    kept: list[Tensor] = field(default_factory=list, compare=False, repr=False)

    def rule(self, context: Context) -> Rule:
        inner = super().rule(context)

        def keep(tree: Tree, scores: Tensor, *rest: Any) -> Verdict:
            deciding = scores[:, 0]
            if self.shared_noise:
                deciding = deciding.log_softmax(-1) - _waits(context, deciding.shape[-1]).log()
            self.kept.append(deciding.to(self.dtype))
            return inner(tree, scores, *rest)

        return keep


def _waits(context: Context, vocab: int) -> Tensor:
    """The noise of each row's next place, `[rows, vocab]`."""
    rows, device = context.rows, context.target.device
    places = torch.tensor([[len(rows.said(row))] for row in range(len(rows.active))], device=device)
    numbers = torch.tensor(rows.active, device=device)
    return waiting(context.noise_seed, numbers, places, vocab)[:, 0]
