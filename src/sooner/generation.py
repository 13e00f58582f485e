"""`sooner.generate`: statistics, streaming and batches on top of HF's `generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

import torch
from torch import Tensor

from .checks import check_inputs, check_model
from .engine.hf_border import on_tokens_of, prepare
from .engine.loop import OnTokens, run
from .engine.memory import out_of_memory
from .engine.noise import generator_of
from .engine.stats.run import Stats
from .errors import UnsupportedError
from .methods.base import Method, as_method
from .models.base import is_sharded

if TYPE_CHECKING:
    from .engine.graphs.recorder import GraphRecorder
    from .options import GenerateOptions

Prefill = Callable[[Any], AbstractContextManager[Any]]
"""A sparse prefill, such as `sooner.FastV()`: called with the model, it is a context manager."""


@dataclass(frozen=True)
class Generation:
    """The outcome that `sooner.generate` returns.

    Attributes:
        sequences: prompt and new tokens, `[rows, width]`, padded at the end.
        tokens: the new tokens of each row, without padding.
        stats: counts and times; `stats.mode` says whether the output is exact.
    """

    sequences: Tensor
    tokens: list[list[int]]
    stats: Stats

    def __repr__(self) -> str:
        """Returns sizes instead of tensors: notebooks print what a cell ends with."""
        counts = ", ".join(str(len(row)) for row in self.tokens[:8])
        more = ", ..." if len(self.tokens) > 8 else ""
        stats = self.stats
        return (
            f"Generation({counts}{more} new tokens, {stats.tokens_per_second:.1f} tokens/s, "
            f"method={stats.method}, mode={stats.mode}, "
            f"mean_acceptance_length={stats.mean_acceptance_length:.2f})"
        )


def generate(
    model: Any,
    inputs: Mapping[str, Any],
    method: Method | str | None = None,
    *,
    prefill: Prefill | None = None,
    seed: int | None = None,
    streamer: Any = None,
    on_tokens: OnTokens | None = None,
    graphs: str | GraphRecorder = "auto",
    compile: bool | Mapping[str, Any] = False,
    verify_every: int | None = None,
    **options: Unpack[GenerateOptions],
) -> Generation:
    """Generates with a method, and returns the tokens with statistics.

        >>> result = sooner.generate(model, inputs, sooner.PromptLookup(), max_new_tokens=256)
        >>> processor.batch_decode(result.sequences)
        >>> result.stats.mode, result.stats.mean_acceptance_length

    Args:
        model: a loaded HF model.
        inputs: what its processor returned.
        method: how to decode; plain by default. `help(sooner)` lists the methods. One that needs no
            model may be given by its name, such as `"prompt-lookup"`.
        prefill: a sparse prefill on the target for this call; what it changes makes the result
            *approximate*.
        seed: seeds every draw of this call and nothing else; `None` uses torch's global state.
        streamer: an HF streamer (one row only).
        on_tokens: called with `(row, new tokens, how many were drafted)` after each commit.
        graphs: `"auto"` captures the steps as CUDA graphs where one GPU holds the model, else
            `stats.notes` says why not; `"off"` launches every operation.
        compile: let `torch.compile` make the forwards of target and draft for each shape that steps
            have, which takes a minute or so for each; `True`, or arguments of `torch.compile`.
        verify_every: rounds after which a committed block is decoded again, token by token, and
            compared. One that differs by more than rounding is a bug: `stats.alarms` counts it,
            `stats.notes` says where, and decoding goes on without drafts. A check takes a target
            forward for each token of the block, and two (`stats.num_check_forwards`): with 1000 at
            most 1 % of the forwards for up to 8 tokens a round.
        options: anything that `model.generate` takes, such as `max_new_tokens`, or `stop_strings`
            with their `tokenizer`; and OpenAI's `presence_penalty` and `frequency_penalty`, which
            count what was generated. `GenerateOptions` has the list.

    Returns:
        The sequences, the new tokens of each row, and statistics, whose `mode` says whether the
        output is exact.

    Raises:
        SoonerError: the request can't be honoured.
        MemoryRanOutError: a `SoonerError`, too: what it takes, and what makes it less.
    """
    check_model("model", model)
    check_inputs(inputs)
    method = as_method(method)
    if prefill is not None and is_sharded(model):
        raise UnsupportedError(
            "a sparse prefill looks at all heads of the target, and under tp_plan each rank holds "
            "some; leave prefill out, or use device_map instead"
        )
    with torch.no_grad():
        call = prepare(model, inputs, options)
        ids = call.inputs["input_ids"]
        if streamer is not None:
            streamer.put(ids.cpu())
        try:
            with prefill(model) if prefill is not None else nullcontext():
                session = method.session(
                    model,
                    call.inputs,
                    call.params,
                    generator=generator_of(model, seed),
                    on_tokens=on_tokens_of(streamer, len(ids) * call.params.n, on_tokens),
                    prefill_chunk=call.prefill_chunk,
                    kv_offload=call.kv_offload,
                    graphs=graphs,
                    compile=compile,
                    verify_every=verify_every,
                )
                tokens = run(session)
        except (RuntimeError, MemoryError) as error:
            if (advice := out_of_memory(error, model, ids, call.params.max_new_tokens)) is None:
                raise
            raise advice from error
    if streamer is not None:
        streamer.end()
    return Generation(call.sequences(tokens), tokens, session.stats)
