"""Why a trained drafter accepts little: its acceptance on a sample is measured as it is configured,
and with one thing changed at a time."""

from __future__ import annotations

import mimetypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from .. import miniatures
from ..errors import SoonerError
from ..methods.context import to_device
from ..methods.dflash.model import DFlashModel
from ..methods.drafter_changes import Change, file_changes, layers_of
from ..models import Adapter, adapt
from ..models.base import Packing
from .identity import read_prompts
from .loading import ModelPair
from .settings import CaptionSettings
from .train_draft.blocks import BlockTask
from .train_draft.heads import HeadTask
from .train_draft.recording import FilePrompt, TrainingSample, answer, read_inputs, read_questions
from .train_draft.settings import BlockTraining, HeadTraining

DEPTH = 5
"""Draft tokens of a step."""
Z, GAIN = 1.96, 0.05
"""Half width of an interval in standard errors, and the smallest gain in accepted length."""
PROMPTS = (
    "Explain in three sentences how a bicycle stays upright.",
    "Write a Python function that returns the prime numbers below n.",
    "What is the capital of France, and what is it known for?",
    "Write a short letter that thanks a colleague for help with a project.",
    "Summarise the plot of Romeo and Juliet.",
)


@dataclass(frozen=True)
class Acceptance:
    """How often drafts are accepted.

    Attributes:
        drafts: drafts of each depth, from every position of the answers, `[DEPTH]`.
        accepted: of those, how many have all tokens accepted, `[DEPTH]`.
        length: mean accepted length of a step of `DEPTH` draft tokens, the target's own included.
    """

    drafts: Tensor
    accepted: Tensor
    length: float

    @property
    def chain(self) -> Tensor:
        """Returns the share of drafts of each depth that are accepted, `[DEPTH]`."""
        return self.accepted / self.drafts.clamp(min=1)

    @property
    def interval(self) -> tuple[Tensor, Tensor]:
        """Returns both ends of Wilson's interval of each share, `[DEPTH]`."""
        share, square = self.chain, Z * Z / self.drafts.clamp(min=1)
        spread = (square * (share * (1 - share) + square / 4)).sqrt()
        low, high = ((share + square / 2 + end) / (1 + square) for end in (-spread, spread))
        return low, high

    def exceeds(self, other: Acceptance) -> bool:
        """Returns whether this is better than another, outside noise."""
        is_clear = bool((self.interval[0] > other.interval[1]).any())
        return is_clear and self.length > other.length + GAIN


@dataclass(frozen=True)
class Diagnosis:
    """What changes make of a drafter's acceptance.

    Attributes:
        training: acceptance by depth that its training measured; empty if its config has none.
        results: changes and what they give; the first is the drafter as configured.
    """

    training: list[float]
    results: list[tuple[Change, Acceptance]]

    @property
    def remedy(self) -> tuple[Change, Acceptance] | None:
        """Returns the change that raises acceptance the most; `None` where none clearly does."""
        better = [result for result in self.results if result[1].exceeds(self.results[0][1])]
        return max(better, key=lambda result: result[1].length, default=None)

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yields a table: name, shares by depth, accepted length."""
        yield ("", *(f"depth {depth + 1}" for depth in range(DEPTH)), "length")
        if self.training:
            shares = [f"{share:.2f}" for share in self.training[:DEPTH]]
            yield ("held out in training", *shares, *[""] * (DEPTH - len(shares)), "")
        for change, made in self.results:
            shares = [f"{share:.2f}" for share in made.chain.tolist()]
            yield (change.name, *shares, f"{made.length:.2f}")

    def summary(self) -> str:
        """Returns the verdict in a line."""
        base, usual = self.results[0][1], self.training[:1]
        text = f"acceptance at depth 1 {base.chain[0]:.2f}"
        if self.remedy is not None:
            change, made = self.remedy
            lengths = f"accepted length {base.length:.2f} → {made.length:.2f}"
            return f"set {change.setting}: {text} → {made.chain[0]:.2f}, {lengths}"
        if usual and base.interval[1][0] < usual[0]:
            text += f", in training {usual[0]:.2f}: give a sample like its training data"
        return f"no change is clearly better; {text}"


@dataclass(frozen=True)
class Recording:
    """An answer of the target, and what a drafter reads of it.

    Attributes:
        sample: with states of `layers`, side by side.
        layers: numbered as `target_layers` does.
        ids: tokens of prompt and answer, placeholders included, `[1, length]`.
        visual: which of them are pixels, `[1, length]`.
        positions: the target's, `[1, length]` or `[axes, 1, length]`.
    """

    sample: TrainingSample
    layers: tuple[int, ...]
    ids: Tensor
    visual: Tensor
    positions: Tensor

    @property
    def is_loop(self) -> bool:
        """Returns whether most of the answer repeats itself, which any drafter drafts well."""
        words = self.sample.tokens[self.sample.prompt :].tolist()
        parts = list(zip(*(words[n:] for n in range(4)), strict=False))
        return 2 * len(set(parts)) < len(parts)

    def accepted(self, drafter: Any, adapter: Adapter) -> Tensor:
        """Returns which positions begin a draft of each depth, and of which drafts all tokens are
        accepted, `[2, span, DEPTH]` bool."""
        states = self.sample.states.unflatten(-1, (len(self.layers), -1))
        places = [self.layers.index(layer) for layer in layers_of(drafter, adapter)]
        sample = replace(self.sample, states=states[:, places].flatten(1))
        if isinstance(drafter, DFlashModel):
            size, anchors = drafter.config.block_size, len(sample.tokens)
            recipe = BlockTraining(block_size=size, anchors=anchors, layers=1)
            blocks = BlockTask(drafter, adapter, recipe)
            parts = torch.cat(blocks.hits(blocks.batch([sample], 0)))
            return pad(parts.cpu(), (0, DEPTH))[..., :DEPTH]
        heads = HeadTask(drafter, adapter, HeadTraining(depth=DEPTH, noise=0))
        batch = heads.batch([sample], 0)
        ids, visual = self.ids[:, 1:-1], self.visual[:, 1:-1]
        batch = replace(batch, embeds=drafter.embed_prompt(adapter, batch.embeds, ids, visual))
        if drafter.wants_positions:
            batch = replace(batch, positions=self.positions[..., : sample.entries])
        parts = pad(torch.cat(heads.hits(batch)).cpu(), (0, 0, 0, DEPTH))
        span = parts.shape[1] - DEPTH  # drafts are counted where they end
        return torch.stack([parts[:, n : n + span, n] for n in range(DEPTH)], -1)


@torch.no_grad()
def record_answer(
    target: Adapter, inputs: Mapping[str, Any], layers: tuple[int, ...], tokens: int
) -> Recording | None:
    """Returns the target's greedy answer to a prompt; `None` where it has no two tokens."""
    placed = to_device(inputs, target.device)
    options = {"max_new_tokens": tokens, "do_sample": False}
    if not (made := answer(target, placed, options, layers, target.dtype)):
        return None
    (sample,), prompt = made, target.embed_prompt(placed)
    width, words = sample.prompt, sample.tokens[sample.prompt :].to(target.device)
    behind = prompt.next_position[..., None] + torch.arange(len(words), device=target.device)
    ids = Packing.of(placed)(placed["input_ids"])[:, :width]
    return Recording(
        sample, layers, torch.cat([ids, words[None]], 1),
        pad(prompt.visual[:, :width], (0, len(words))),
        torch.cat([prompt.positions[..., :width], behind], -1),
    )  # fmt: skip


@torch.no_grad()
def measure(drafter: Any, recordings: Sequence[Recording], adapter: Adapter) -> Acceptance:
    """Returns the acceptance of a drafter's chains behind every position of recorded answers."""
    drafter = drafter.placed(adapter)
    counts, steps, tokens = torch.zeros(2, DEPTH, dtype=torch.long), 0, 0
    for recording in recordings:
        parts = recording.accepted(drafter, adapter)  # [2, span, DEPTH]
        counts += parts.sum(1)
        lengths, at = parts[1].sum(1).tolist(), 0
        while at < len(lengths):  # as decoding goes on from draft to draft
            steps, tokens = steps + 1, tokens + lengths[at]
            at += lengths[at] + 1
    drafts, accepted = counts
    return Acceptance(drafts, accepted, 1 + tokens / max(steps, 1))


def questions_of(sample: Path | None, target: str) -> list[FilePrompt]:
    """Returns the prompts of a text file of one a line, of what `read_questions` takes, a picture
    or a video; by default those of the sample of the miniature `target`, or built-in ones.

    Raises:
        SoonerError: a file that can't be read, or holds no prompt.
    """
    if sample is None:
        for small in map(miniatures.find, miniatures.names()):
            if str(small.target) == target and small.sample is not None:
                return [FilePrompt(small.sample, small.sample.suffix == ".png", small.prompt)]
        return [FilePrompt(None, prompt=prompt) for prompt in PROMPTS]
    if sample.suffix == ".txt":
        return [FilePrompt(None, prompt=line) for _, line in read_prompts(sample)]
    is_image = (mimetypes.guess_type(sample.name)[0] or "").startswith("image/")
    return [FilePrompt(sample, True)] if is_image else read_questions(sample)


def diagnose(
    pair: ModelPair, drafter: Path | str, sample: Path | None = None, *, template: bool = True,
    tokens: int = 64, on_change: Callable[[str], None] = lambda name: None,
) -> Diagnosis:  # fmt: skip
    """Returns the acceptance of a drafter on a sample, and what each change makes of it.

    The target answers each prompt, greedily; drafts behind every position are compared with it.

    Args:
        pair: the target, see `load_pair(sees=False)`.
        drafter: its folder, or its name on the model hub.
        sample: see `questions_of`.
        template: prompts without a file are written by the chat template.
        tokens: largest number of an answer.
        on_change: called with the name of each change before it is tried.

    Raises:
        SoonerError: files that can't be read or don't fit each other; no answer of two tokens.
        UnsupportedError: a kind of drafter that is not run, or an assistant.
    """
    adapter, tokenizer = adapt(pair.target.model), pair.target.tokenizer
    changes, questions = file_changes(drafter, adapter), questions_of(sample, pair.target.name)
    base, has_template = changes[0].drafter, getattr(tokenizer, "chat_template", None) is not None
    has_files = any(question.path is not None for question in questions)
    template = template and has_template
    if has_template and not all(question.path for question in questions):
        words = "no chat template" if template else "a chat template"
        changes.append(Change(f"prompts: {words}", f"{words} for prompts", base, "template"))
    if not has_files:
        changes = [change for change in changes if "pixels" not in change.name]
    elif tokenizer is not pair.target.processor:
        setting = "a drafter that was trained on prompts with pixels (this one was not)"
        changes.append(Change("prompts without pixels", setting, base, "pixels"))
    if adapter.dtype != torch.float32 and not getattr(adapter.model, "is_quantized", False):
        changes.append(Change("dtype float32", "--dtype float32", base, "dtype"))
    layers = tuple(sorted({n for change in changes for n in layers_of(change.drafter, adapter)}))
    settings = CaptionSettings(max_new_tokens=tokens)
    memory: dict[Any, Recording | None] = {}

    def record(question: FilePrompt, mode: str) -> Recording | None:
        if mode == "pixels":
            question = FilePrompt(None, prompt=question.prompt or PROMPTS[0])
        written = question.path is not None or template != (mode == "template")
        key = (question, written, mode == "dtype")
        if key not in memory:
            inputs: Any = None if written else tokenizer(question.prompt, return_tensors="pt")
            inputs = dict(inputs or read_inputs(question, pair, settings))
            memory[key] = record_answer(adapter, inputs, layers, tokens)
        return memory[key]

    results: list[tuple[Change, Acceptance]] = []
    for change in changes:
        on_change(change.name)
        if change.mode == "dtype":
            adapter.model.float()  # the last change: nothing else is measured with it
        usable = list[Recording]()
        for question in questions:
            made, usual = record(question, change.mode), record(question, "")
            if made is not None and (usual is None or usual.is_loop or not made.is_loop):
                usable.append(made)
        if usable:
            results.append((change, measure(change.drafter, usable, adapter)))
        elif not change.mode:
            raise SoonerError(
                f"'{pair.target.name}' answers no prompt of the sample with two tokens; give other "
                "prompts with --sample"
            )
    training = (base.config.provenance.get("acceptance") or {}).get("chain") or []
    return Diagnosis(training, results)
