"""`sooner.draw`: pictures and clips out of autoregressive models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .checks import check_whole
from .engine.loop import OnTokens, run
from .engine.row_sampling import SamplingParams
from .engine.stats.run import Stats
from .errors import SoonerError
from .methods import CoupledJacobi, Method
from .methods.base import as_method
from .models.canvas import Canvas, Sampling

DEFAULT: Any = object()
"""Stands for the checkpoint's own setting, where `None` means to leave a warper out."""


@dataclass(frozen=True)
class Drawing:
    """The outcome that `sooner.draw` returns.

    Attributes:
        tokens: whole spans, what the prompt gave of them included, `[rows, canvas.grid.length]`;
            `canvas.pixels` decodes them.
        stats: counts and times; `stats.mode` says whether the draws are exact.
        sampling: what they were drawn with.
        seed: of every draw.
    """

    tokens: Tensor
    stats: Stats
    sampling: Sampling
    seed: int


def draw(
    canvas: Canvas,
    inputs: Mapping[str, Any],
    method: Method | str | None = None,
    *,
    count: int = 1,
    seed: int | None = None,
    do_sample: bool = True,
    temperature: float = DEFAULT,
    top_k: int | None = DEFAULT,
    top_p: float | None = DEFAULT,
    guidance: float = DEFAULT,
    on_tokens: OnTokens | None = None,
) -> Drawing:
    """Draw `count` pictures of each prompt, all of them in one batch of ragged rows.

    Args:
        canvas: from `sooner.models.canvas(model)`; `canvas.pixels` decodes what is drawn.
        inputs: the processed prompts.
        method: how to decode; `CoupledJacobi()` by default.
        seed: seeds every draw; `None` takes one from torch's global generator.
        do_sample: draw; otherwise take the likeliest code every time.
        temperature, top_k, top_p, guidance: as in `generate`; by default the checkpoint's own.
        on_tokens: called with `(row, new tokens, how many were drafted)` after each commit.

    Raises:
        SoonerError: an option that can't be honoured, or a prompt that is too long.
    """
    values = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "guidance": guidance}
    explicit: dict[str, Any] = {key: item for key, item in values.items() if item is not DEFAULT}
    sampling = replace(canvas.sampling, **explicit)
    check_whole("count", count)
    seed = int(torch.randint(1 << 31, (1,))) if seed is None else seed
    ids = inputs["input_ids"]
    _check_room(canvas, ids)
    params = SamplingParams(max_new_tokens=canvas.grid.left, n=count)
    if do_sample:
        params = replace(
            params,
            do_sample=True,
            temperature=float(sampling.temperature),
            top_k=sampling.top_k or 0,
            top_p=1.0 if sampling.top_p is None else float(sampling.top_p),
        )
    chosen = CoupledJacobi() if method is None else as_method(method)
    session = chosen.session(
        canvas,
        inputs,
        params,
        generator=torch.Generator(device=canvas.device).manual_seed(seed),
        on_tokens=on_tokens,
        guidance=sampling.guidance,
    )
    new = torch.tensor(run(session))  # [rows, grid.left]
    prefix = ids[:, ids.shape[1] - canvas.grid.prefix :].cpu().repeat_interleave(count, 0)
    return Drawing(torch.cat([prefix, new], 1), session.stats, sampling, seed)


def _check_room(canvas: Canvas, ids: Tensor) -> None:
    # What `canvas.opened` may still put behind the prompt counts too.
    limit, needed = canvas.max_positions, ids.shape[1] + len(canvas.opening) + canvas.grid.left
    if limit is not None and needed > limit:
        raise SoonerError(
            f"prompt of {ids.shape[1]} tokens and a picture of {canvas.grid.left} need "
            f"{needed} positions, {type(canvas.model).__name__} has {limit}; use a shorter prompt"
        )
