"""llama.cpp as a clock from outside: the same weights and prompts, kernels of its own."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from importlib.util import find_spec
from typing import Any

from ...real import MODELS
from ..run import TimedRun


def missing(model: str) -> str | None:
    """Return why llama.cpp can't run a model here, or `None`."""
    if find_spec("llama_cpp") is None:
        return "llama-cpp-python is not installed (pip install llama-cpp-python)"
    return None if model in MODELS else f"no installed wheel has a GGUF of '{model}'"


class LlamaCpp:
    """A model whose GGUF is in an installed wheel, decoded greedily by llama.cpp.

    Args:
        model: name of `MODELS`.
        dtype: of weights, keys and values: `f32` or `f16`.
        threads: of llama.cpp.
        context: tokens of the longest prompt with its answer.
    """

    def __init__(self, model: str, dtype: str, threads: int, context: int) -> None:
        import llama_cpp

        file, number = MODELS[model].gguf(dtype), int(dtype == "f16")
        self._llama: Any = llama_cpp.Llama(
            str(file), n_ctx=context, n_threads=threads, n_threads_batch=threads,
            type_k=number, type_v=number, verbose=False,  # ggml numbers float32 0, float16 1
        )  # fmt: skip

    def run(self, ids: Sequence[int], limit: int, ends: Collection[int]) -> TimedRun:
        """Decode at most `limit` tokens behind a prompt; the time of the first is no decoding."""
        self._llama.reset()
        tokens, times = list[int](), [time.perf_counter()]
        for token in self._llama.generate(ids, temp=0.0):
            tokens.append(token)
            times.append(time.perf_counter())
            if len(tokens) == limit or token in ends:
                break
        begin, first, last = times[0], times[1], times[-1]
        return TimedRun(
            [tokens], last - first, last - begin, len(tokens) - 1,
            first_token_seconds=first - begin,
        )  # fmt: skip
