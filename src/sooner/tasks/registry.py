"""Method names of the command line, and how each is built from settings and a pair of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import SoonerError, unknown
from ..methods import Autoregressive, Method, PromptLookup, Speculative
from .loading import Pair
from .settings import CaptionSettings

Inputs = Mapping[str, Any]


def method_name(settings: CaptionSettings, pair: Pair) -> str:
    """The method asked for, or the best one that these models allow."""
    if settings.method is not None:
        return settings.method
    return "speculative" if pair.draft is not None else "prompt-lookup"


def needs_draft(name: str) -> bool:
    return name == "speculative"


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
    if name not in BUILDERS:
        raise unknown("method", name, BUILDERS)
    return BUILDERS[name](settings, pair, draft_inputs)


def _plain(settings: CaptionSettings, pair: Pair, draft_inputs: Inputs | None) -> Method:
    return Autoregressive()


def _prompt_lookup(settings: CaptionSettings, pair: Pair, draft_inputs: Inputs | None) -> Method:
    return PromptLookup() if settings.window == "auto" else PromptLookup(window=settings.window)


def _speculative(settings: CaptionSettings, pair: Pair, draft_inputs: Inputs | None) -> Method:
    if pair.draft is None:
        raise SoonerError(
            f"method 'speculative' needs a draft for '{pair.target.name}'; give --draft, or "
            "--method prompt-lookup"
        )
    return Speculative(pair.draft.model, window=settings.window, draft_inputs=draft_inputs)


BUILDERS: dict[str, Callable[[CaptionSettings, Pair, Inputs | None], Method]] = {
    "plain": _plain,
    "prompt-lookup": _prompt_lookup,
    "speculative": _speculative,
}
