"""What a method builds its drafter from, and what its inputs, options and models must be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..engine.grid import GridConstraint
from ..engine.interface import Prompt
from ..engine.noise import RowNoise
from ..engine.rows import Rows, Stopping
from ..engine.runner import ModelRunner
from ..engine.sampling import Processing
from ..engine.stats.run import Stats
from ..errors import SoonerError, UnsupportedError
from ..models.base import Adapter, TextModel
from ..parity import end_ids

if TYPE_CHECKING:
    from ..engine.graphs.steps import StepGraphs

PADDING = 1024
"""Vocabularies of one tokenizer differ by the padding of their embedding; more is another one."""


def same_tokenizer(target: Any, draft: Any) -> None:
    """Require two tokenizers, if both are given, to give every token the same id.

    Raises:
        SoonerError: names both tokenizers and the first token that differs.
    """
    if target is None or draft is None:
        return
    ours, draft_vocab = target.get_vocab(), draft.get_vocab()
    if ours == draft_vocab:
        return
    differing = {token for token, _ in ours.items() ^ draft_vocab.items()}
    token = min(differing, key=lambda token: (ours.get(token, 1 << 30), token))
    raise SoonerError(
        f"draft and target have different tokenizers: {_name(draft)} gives {token!r} the id "
        f"{draft_vocab.get(token)}, {_name(target)} gives it {ours.get(token)}; use a draft of the "
        "target's own family"
    )


def same_vocabulary(target: Any, draft: Any) -> None:
    """Require two models to look like users of one tokenizer, as far as their configs tell.

    Raises:
        SoonerError: names both models.
    """
    ours, draft_size = target.vocab_size, draft.vocab_size
    names = f"{_name(draft.model)} and {_name(target.model)}"
    if abs(ours - draft_size) > PADDING:
        raise SoonerError(
            f"draft and target have different tokenizers: {names} have vocabularies of "
            f"{draft_size} and {ours}; use a draft of the target's own family"
        )
    ends = [set(end_ids(adapter.model)) for adapter in (target, draft)]
    if all(ends) and not ends[0] & ends[1]:
        raise SoonerError(
            f"draft and target have different tokenizers: {names} end a text with "
            f"{sorted(ends[1])} and {sorted(ends[0])}; use a draft of the target's own family"
        )


def _name(thing: Any) -> str:
    return getattr(thing, "name_or_path", "") or type(thing).__name__


def embed(
    adapter: Adapter, inputs: Mapping[str, Any], rows: int, copies: int = 1,
    output_ids: Tensor | None = None,
) -> Prompt:  # fmt: skip
    """Embed `rows` prompts, which may end with other `output_ids` (see `Context`), and repeat each
    `copies` times, so that pixels are encoded once.

    Raises:
        SoonerError: `inputs` hold another number of prompts.
    """
    have = inputs["input_ids"].shape[0]
    if have != rows:
        raise SoonerError(
            f"draft_inputs hold {have} prompts, the target's inputs {rows}; process the same "
            "prompts for both"
        )
    prompt = adapter.embed_prompt(inputs)
    if output_ids is not None:
        from ..models.parsers import EXTRA  # hardly ever needed

        if EXTRA in prompt.extras:
            raise UnsupportedError(
                f"{type(adapter.model).__name__} said a token that stands for pixels in its "
                "prompts, and would take it for one there; begin this request anew"
            )
        end = -output_ids.shape[1]
        words = adapter.embed_tokens(output_ids)
        prompt.embeds = torch.cat([prompt.embeds[:, :end], words], 1)
        for name, value in adapter.step_extras(output_ids).items():
            prompt.extras[name] = torch.cat([prompt.extras[name][:, :end], value], 1)
    return prompt if copies == 1 else adapter.repeat_prompt(prompt, copies)


def drop_output_pixels(
    adapter: Adapter, inputs: Mapping[str, Any], generated: int
) -> tuple[Mapping[str, Any], Tensor | None]:
    """Returns inputs in whose last `generated` ids nothing stands for pixels, and those ids if
    anything did: a model may generate such an id, which is a word like any other then."""
    ids = inputs["input_ids"]
    output_ids = ids[:, ids.shape[1] - generated :]
    pixels = set(adapter.visual_ids)
    if pixels.isdisjoint(output_ids.flatten().tolist()):
        return inputs, None
    word = next(token for token in range(adapter.vocab_size) if token not in pixels)
    words = torch.cat([ids[:, : -output_ids.shape[1]], torch.full_like(output_ids, word)], 1)
    return {**inputs, "input_ids": words}, output_ids


def visual_tokens(context: Context) -> Tensor:
    """Returns which tokens of the target's packed prompt stand for pixels, `[rows, width]` bool."""
    return context.target.visual_tokens(context.inputs).repeat_interleave(context.copies, 0)


def prompt_lengths(context: Context) -> list[int]:
    """Returns real tokens of each of the target's prompts."""
    ids, mask = context.inputs["input_ids"], context.inputs.get("attention_mask")
    lengths = [ids.shape[1]] * ids.shape[0] if mask is None else mask.sum(1).tolist()
    return [length for length in lengths for _ in range(context.copies)]


def prompt_for(adapter: Adapter, context: Context) -> dict[str, Any]:
    """Returns the target's inputs as the draft takes them: all of them, or the words alone."""
    return words_only(context) if isinstance(adapter, TextModel) else dict(context.inputs)


def words_only(context: Context) -> dict[str, Any]:
    """Returns the target's prompts without their placeholders, padded anew on the left:
    `input_ids` and `attention_mask`, `[rows, words of the longest prompt]`."""
    ids = context.inputs["input_ids"]
    mask = context.inputs.get("attention_mask")
    mask = torch.ones_like(ids) if mask is None else mask
    pictures = torch.tensor(context.target.visual_ids, dtype=ids.dtype, device=ids.device)
    words = mask.bool() & ~torch.isin(ids, pictures)
    # A prompt of pictures alone leaves its last token: a draft needs something to continue.
    words[:, -1] |= ~words.any(1)
    order = torch.where(words, 1, 0).argsort(dim=1, stable=True)  # words last, in their order
    order = order[:, -int(words.sum(1).max()) :]
    selected = words.gather(1, order).to(mask.dtype)
    return {"input_ids": ids.gather(1, order), "attention_mask": selected}


@dataclass
class Context:
    """What a method may build its drafter from.

    Attributes:
        target: adapter of the target model.
        runner: runs it; its cache is empty until the prefill.
        inputs: the target's processed inputs on its device, one of each prompt.
        output_ids: what `inputs` end with in truth, `[prompts, ids]`, where rows said ids that
            stand for pixels in a prompt; other words stand in their place.
        rows: the batch's bookkeeping.
        processing: the processed distribution, to be shared by the draft.
        stopping: when rows end; `stopping.limit` bounds the new tokens of a row.
        stats: where the drafter's own times go.
        noise: the rows' random numbers, at the first new token.
        copies: rows that each prompt becomes (`num_return_sequences`).
        guidance: scale of classifier-free guidance; 1 is none.
        constraint: places of the picture that is drawn; `None` for text.
        prefill_chunk: prompt tokens of a row that a model prefills at once; `None` is all of them.
        graphs: launch the target's steps, and may launch a draft's forwards; `None` is one by one.
    """

    target: Adapter
    runner: ModelRunner
    inputs: Mapping[str, Any]
    rows: Rows
    processing: Processing
    stopping: Stopping
    stats: Stats
    noise: RowNoise
    copies: int = 1
    guidance: float = 1.0
    constraint: GridConstraint | None = None
    prefill_chunk: int | None = None
    graphs: StepGraphs | None = None
    output_ids: Tensor | None = None

    @property
    def prompts(self) -> int:
        """Prompts in `inputs`; each becomes `copies` rows."""
        return self.rows.batch // self.copies


def to_device(inputs: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Returns the same inputs with every tensor on `device`."""
    return {
        name: value.to(device) if isinstance(value, Tensor) else value
        for name, value in inputs.items()
    }
