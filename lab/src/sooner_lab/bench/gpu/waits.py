"""Where a round of the engine waits for the GPU, as CUDA's own debug mode reports it."""

from __future__ import annotations

import traceback
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import sooner

from .bench import GpuBench
from .models import prompts
from .texts import graph_options
from .timing import told

LIBRARY = str(Path(sooner.__file__).parents[1]) + "/"

NEW = 128
"""New tokens of the text whose rounds are watched."""

SETTLED = 12
"""Engine steps before a round is watched: prefill, first steps as they are, captures."""


def waits(bench: GpuBench, out: dict[str, Any]) -> None:
    """The first wait of a round, and every place that waits in the next.

    Writes `methods`: of each `method` `first` (`None` if a round waits nowhere) and `places`. The
    mode does not see `torch.cuda.synchronize`, which the clock of the statistics calls.
    """
    out |= {"methods": [], "note": "torch.cuda.synchronize is not seen by this mode"}
    settings = bench.settings
    target, draft = (bench.models.get(name) for name in (settings.target, settings.draft))
    for method in (None, sooner.Speculative(draft, settings.num_draft_tokens)):
        engine = sooner.Engine(target, method, **graph_options(bench))
        vocab = draft.config.vocab_size
        inputs = prompts(1, settings.rows_context, NEW, vocab, bench.device, settings.seed)
        request = engine.admit(inputs, max_new_tokens=NEW, do_sample=False)
        for _ in range(SETTLED):
            engine.step()
        figures: dict[str, Any] = {"places": all_waits(bench, engine)}
        figures["first"] = first_wait(bench, engine, request)
        out["methods"].append({"method": "plain" if method is None else method.name, **figures})
        engine.close()
        bench.clock.wait()


def first_wait(bench: GpuBench, engine: Any, request: Any) -> str | None:
    """Where a step waits first, or `None`; a step that waits is broken off there.

    The engine does not raise what ends a request: it is the request's `error`.
    """
    with _debug_mode(bench, "error"):
        engine.step()
    if (error := request.error) is None:
        return None
    frames = traceback.extract_tb(error.__traceback__)
    return f"{_place((frame.filename, frame.lineno) for frame in frames)}: {told(error)}"


def all_waits(bench: GpuBench, engine: Any) -> list[str]:
    """Every place where a step waits, and how often, most frequent first."""
    with warnings.catch_warnings(record=True) as caught, _debug_mode(bench, "warn"):
        warnings.simplefilter("always")
        engine.step()
    places = Counter(
        _place([(one.filename, one.lineno)]) for one in caught if "synchroniz" in str(one.message)
    )
    return [f"{times} {place}" for place, times in places.most_common()]


@contextmanager
def _debug_mode(bench: GpuBench, mode: str) -> Iterator[None]:
    """CUDA's debug mode for synchronisation, while a step runs; nothing elsewhere."""
    if not bench.clock.is_cuda:
        yield
        return
    torch.cuda.set_sync_debug_mode(mode)
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def _place(frames: Iterable[tuple[str, int | None]]) -> str:
    """The last of some frames that is the library's own, or else the last."""
    known = list(frames)
    path, line = ([frame for frame in known if frame[0].startswith(LIBRARY)] or known)[-1]
    return f"{path.removeprefix(LIBRARY)}:{line}"
