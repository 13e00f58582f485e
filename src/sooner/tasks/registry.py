"""Method names of the command line, and how each is built from settings and a pair of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import SoonerError, unknown
from ..methods import (
    Autoregressive,
    Method,
    OnSD,
    ParallelVLM,
    PromptLookup,
    SDTree,
    SparseToDense,
    Speculative,
    SpecVLM,
)
from .loading import Pair
from .settings import DEFAULT_PRUNE, CaptionSettings

Inputs = Mapping[str, Any] | None
Build = Callable[[CaptionSettings, Pair, Inputs], Method]


@dataclass(frozen=True)
class Entry:
    """How a method is built.

    Attributes:
        build: from settings, models and the draft's own inputs (`None` for text-only drafts).
        drafts: it needs a draft model.
        sees: that draft looks at pixels, if it can.
    """

    build: Build
    drafts: bool = True
    sees: bool = True


def method_name(settings: CaptionSettings, pair: Pair) -> str:
    """The method asked for, or the best one that these models allow."""
    if settings.method is not None:
        return settings.method
    return "speculative" if pair.draft is not None else "prompt-lookup"


def needs_draft(name: str) -> bool:
    """Whether a method uses a draft model that looks at pixels."""
    return name in METHODS and METHODS[name].drafts and METHODS[name].sees


def build_method(
    settings: CaptionSettings, pair: Pair, draft_inputs: Inputs | None = None
) -> Method:
    """The method that `settings` name.

    Args:
        draft_inputs: the prompt as the draft's own processor gives it; `None` for text-only drafts.

    Raises:
        SoonerError: an unknown name, a missing draft, or options that the method refuses.
    """
    name = method_name(settings, pair)
    if name not in METHODS:
        raise unknown("method", name, METHODS)
    if METHODS[name].drafts and pair.draft is None:
        raise SoonerError(
            f"method '{name}' needs a draft for '{pair.target.name}'; give --draft, or "
            "--method prompt-lookup"
        )
    return METHODS[name].build(settings, pair, draft_inputs)


def _draft(pair: Pair) -> Any:
    assert pair.draft is not None
    return pair.draft.model


def _prune(settings: CaptionSettings) -> float:
    return DEFAULT_PRUNE if settings.prune is None else settings.prune


def _window(settings: CaptionSettings) -> dict[str, int]:
    """A number that was asked for; `auto` leaves it to the method."""
    return {} if settings.window == "auto" else {"window": settings.window}


def _plain(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return Autoregressive()


def _prompt_lookup(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return PromptLookup(**_window(settings))


def _speculative(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return Speculative(_draft(pair), window=settings.window, draft_inputs=inputs)


def _parallel(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    options: dict[str, Any] = {"placement": settings.placement, **_window(settings)}
    return ParallelVLM(_draft(pair), prune=_prune(settings), draft_inputs=inputs, **options)


def _sd_tree(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SDTree(_draft(pair), draft_inputs=inputs)


def _onsd(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return OnSD(_draft(pair), window=settings.window)


def _specvlm(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SpecVLM(_draft(pair), prune=_prune(settings), draft_inputs=inputs)


def _sparse_to_dense(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SparseToDense(prune=_prune(settings), **_window(settings))


METHODS: dict[str, Entry] = {
    "plain": Entry(_plain, drafts=False),
    "prompt-lookup": Entry(_prompt_lookup, drafts=False),
    "speculative": Entry(_speculative),
    "parallel": Entry(_parallel),
    "sd-tree": Entry(_sd_tree),
    "onsd": Entry(_onsd, sees=False),
    "specvlm": Entry(_specvlm),
    "sparse-to-dense": Entry(_sparse_to_dense, drafts=False),
}
