"""Vanilla speculative decoding: a draft model writes a chain, one target forward checks it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

from torch import Tensor

from ..checks import option
from ..engine.acceptance import VerifyResult, follow_choices, pure, reject_chain
from ..engine.interface import AdapterLike, Drafter
from ..engine.loop import Rule
from ..engine.noise import RowNoise
from ..engine.sampling import Processing
from ..engine.tree import Tree
from ..models import adapt
from .base import Method, draft_of
from .chain_draft import ChainDrafter
from .context import Context, same_tokenizer, words_only
from .draft_length import Acceptance, AdaptiveDraftLength, DraftLength
from .settings import MethodSettings


@dataclass(frozen=True)
class Speculative(Method):
    """Runs speculative decoding with a draft model (Leviathan et al. 2023; Chen et al. 2023).

    Args:
        draft: a loaded HF model of one of the supported families. A text-only model drafts from
            the words of the prompt alone.
        num_draft_tokens: draft tokens a round, or `"auto"` for the number that measurably pays,
            which may be none: then decoding is plain until speculation is tried again. A draft
            whose weights are as many bytes as the target's is never tried, unless some of either
            are quantised.
        max_draft_tokens: upper limit for `"auto"`.
        draft_inputs: the prompt as the draft's own processor gives it. Without it the draft gets
            the target's, which is right only if both process pixels alike.
        tokenizer, draft_tokenizer: given both, they are compared token by token.
        experience: the acceptance of earlier runs, which `"auto"` begins with and adds to; for one
            pair of models. Without it every run begins with a guess.

    Raises:
        SoonerError: num_draft_tokens below 1, or draft and target of different tokenizers.
    """

    draft: Any
    num_draft_tokens: int | Literal["auto"] = option("auto", 1)
    max_draft_tokens: int = option(16, 1)
    draft_inputs: Mapping[str, Any] | None = field(default=None, repr=False, compare=False)
    tokenizer: Any = field(default=None, repr=False, compare=False)
    draft_tokenizer: Any = field(default=None, repr=False, compare=False)
    experience: Acceptance | None = field(default=None, repr=False, compare=False)
    name: ClassVar[str] = "speculative"
    drafts_chains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        same_tokenizer(self.tokenizer, self.draft_tokenizer)

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        pruned = None if settings.draft_inputs is None else 0.0
        return cls(
            settings.draft,
            num_draft_tokens=settings.num_draft_tokens,
            draft_inputs=settings.draft_inputs,
            experience=settings.experience(pruned),
        )

    def expect(self, rows: int, waiting: int, max_rows: int) -> None:
        if self.experience is not None:
            self.experience.requests.expect(rows, waiting, max_rows)

    def build(self, context: Context) -> tuple[Drafter, Rule]:
        adapter, inputs = self._draft_of(context)
        return ChainDrafter(adapter, inputs, context, self._draft_length(context)), reject

    def _draft_of(self, context: Context) -> tuple[AdapterLike, Mapping[str, Any]]:
        return draft_of(self, context)

    def _draft_length(self, context: Context) -> DraftLength:
        if self.num_draft_tokens == "auto":
            note, known = context.stats.note, self.experience
            if known is not None:
                known = known.of(any("pixel" in name for name in context.inputs))
            may_pay = _may_be_faster(adapt(self.draft), context.target)
            return AdaptiveDraftLength(self.max_draft_tokens, note, known, may_pay)
        return DraftLength(int(self.num_draft_tokens))


@dataclass(frozen=True)
class OnSD(Speculative):
    """Runs speculative decoding with a text-only draft (Gagrani et al. 2024).

    The draft is a language model, or the language model inside a multimodal one, and gets the
    words of the prompt alone: no pixels, no placeholders, and so no cost that grows with the
    video. What only the pixels tell it has to guess.

    Args:
        all: as for `Speculative`; the baseline drafts 5 tokens a round.

    Raises:
        SoonerError: num_draft_tokens below 1, or draft and target of different tokenizers.
    """

    name: ClassVar[str] = "onsd"

    @classmethod
    def from_settings(cls, settings: MethodSettings) -> Self:
        experience = settings.experience(None)
        return cls(
            settings.draft, num_draft_tokens=settings.num_draft_tokens, experience=experience
        )

    def _draft_of(self, context: Context) -> tuple[AdapterLike, Mapping[str, Any]]:
        adapter, inputs = super()._draft_of(context)
        return adapter, words_only(context) if self.draft_inputs is None else inputs


def _may_be_faster(draft: AdapterLike, target: AdapterLike) -> bool:
    """Returns whether a step of the draft may be faster than one of the target: its weights are
    fewer bytes, or some are quantised, whose steps take what their kernels take.
    """
    weights = [list(adapter.decoder.parameters()) for adapter in (draft, target)]
    if not all(weight.is_floating_point() for each in weights for weight in each):
        return True
    ours, others = (sum(weight.nbytes for weight in each) for each in weights)
    return ours < others or not others


@pure
def reject(tree: Tree, scores: Tensor, processing: Processing, noise: RowNoise) -> VerifyResult:
    """Returns rejection sampling where there is a draft; a plain draw where there is none."""
    if tree.probs is None:
        return follow_choices(tree, scores, processing, noise)
    return reject_chain(tree, processing.probabilities(scores), noise)
