"""What a model makes of its head's outputs: a scale, a soft cap."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from torch import Tensor

Scores = Callable[[Tensor], Tensor]


def scores_of(model: Any) -> Scores:
    """Returns what maps the head's outputs to the model's logits, by what its own forward names.

    A config may hold a cap that its class does not apply, and the other way round, so the names
    are looked for in the source of the forward; `self_check` finds out where that is not enough.
    """
    text = model.config.get_text_config(decoder=True)
    try:
        source = inspect.getsource(type(model).forward)
    except (OSError, TypeError):
        return _same

    def named(name: str) -> float | None:
        value = getattr(text, name, getattr(model.config, name, None))
        return value if name in source and isinstance(value, int | float) else None

    times, over = named("output_multiplier") or named("logit_scale"), named("logits_scaling")
    cap = named("final_logit_softcapping")
    if times is over is cap is None:
        return _same

    def scores(logits: Tensor) -> Tensor:
        if times is not None:
            logits = logits * times
        if over is not None:
            logits = logits / over
        return logits if cap is None else (logits / cap).tanh() * cap

    return scores


def _same(logits: Tensor) -> Tensor:
    return logits
