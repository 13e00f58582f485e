"""Plain drawing beside a method, in the same process: how much sooner, and is it the same?"""

from __future__ import annotations

from typing import Any

from torch import Tensor
from transformers import MaxLengthCriteria, StoppingCriteriaList

from ...decoding.acceptance import Verdict
from ...decoding.loop import run
from ...decoding.parity import Parity, compare
from ...decoding.tree import Tree
from ...drawing import Drawing
from ...methods import Autoregressive
from ..comparison import plain_data
from .painting import Work, paint
from .sketch import OnProgress


def compare_plain(
    work: Work, made: Drawing, on_progress: OnProgress | None = None
) -> dict[str, Any]:
    """Draw the same batch plainly, and set both side by side.

    Returns:
        `decode_speedup`, `draw_speedup` (prefill included), `step_compression` as measured,
        `plain` (its figures), and `parity`, which is `None` under sampling, where exact means the
        same distribution. Speed-ups are `None` when parity says *bug*.
    """
    plain, _ = paint(work, Autoregressive(), on_progress)
    parity = check(work, plain, made) if work.settings.greedy else None
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


def check(work: Work, plain: Drawing, made: Drawing) -> Parity:
    """Parity of two greedy runs; only a difference costs a run that keeps scores."""
    given = work.canvas.grid.given
    one, other = (drawing.tokens[0, given:].tolist() for drawing in (plain, made))
    first = compare(one, other)
    return first if first.verdict == "identical" else compare(one, other, _scores(work, made))


def _scores(work: Work, made: Drawing) -> list[Tensor]:
    """Processed scores of each step of plain greedy drawing, `[vocab]` in the model's dtype."""
    ids, kept = work.inputs["input_ids"], list[Tensor]()
    session = Autoregressive().session(
        work.canvas,
        work.inputs,
        criteria=StoppingCriteriaList([MaxLengthCriteria(ids.shape[1] + work.canvas.grid.left)]),
        guidance=made.sampling.guidance,
    )

    def keep(tree: Tree, scores: Tensor, *rest: Any) -> Verdict:
        kept.append(scores[0, 0].to(work.canvas.dtype))
        return rule(tree, scores, *rest)

    rule, session.rule = session.rule, keep
    run(session)
    return kept
