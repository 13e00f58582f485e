"""Where a round of the loop waits for the GPU, as CUDA's own debug mode reports it."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch

from sooner.engine import Engine
from sooner.methods import Speculative

from .bench import GpuBench
from .models import prompts
from .timing import told

NEW = 32
"""New tokens of the text whose rounds are watched."""


def waits(bench: GpuBench, out: dict[str, Any]) -> None:
    """The first wait of a round, and every place that waits in the next.

    Writes `methods`: of each `method` `first` (`None` if a round waits nowhere) and `places`. The
    mode does not see `torch.cuda.synchronize`, which the clock of the statistics calls.
    """
    out |= {"methods": [], "note": "torch.cuda.synchronize is not seen by this mode"}
    if not bench.clock.is_cuda:
        out["reason"] = "no CUDA"
        return
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    for method in (None, Speculative(draft, settings.num_draft_tokens)):
        engine = Engine(target, method)
        vocab = draft.config.vocab_size
        ids = prompts(1, settings.rows_context, NEW, vocab, bench.device, settings.seed)
        engine.admit({"input_ids": ids}, max_new_tokens=NEW, do_sample=False)
        for _ in range(3):
            engine.step()
        found = {"places": all_waits(engine.step), "first": first_wait(engine.step)}
        out["methods"].append({"method": "plain" if method is None else method.name, **found})
        bench.clock.wait()


def first_wait(step: Callable[[], Any]) -> str | None:
    """Where `step` waits first, or `None`; a step that waits is broken off there."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        step()
    except RuntimeError as error:
        frames = traceback.extract_tb(error.__traceback__)
        return f"{_place((frame.filename, frame.lineno) for frame in frames)}: {told(error)}"
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return None


def all_waits(step: Callable[[], Any]) -> list[str]:
    """Every place where `step` waits, and how often, most frequent first."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    places = Counter(
        _place([(one.filename, one.lineno)]) for one in caught if "synchroniz" in str(one.message)
    )
    return [f"{times} {place}" for place, times in places.most_common()]


def _place(frames: Iterable[tuple[str, int | None]]) -> str:
    """The last of some frames that is the project's own, or else the last."""
    known = list(frames)
    own = [frame for frame in known if "sooner/" in frame[0]] or known
    path, line = own[-1]
    return f"{path[path.rfind('sooner/') :] if 'sooner/' in path else path}:{line}"
