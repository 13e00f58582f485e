"""Method names of the command line, and how each is built from settings and a pair of models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..decoding.loop import Session
from ..errors import SoonerError, unknown
from ..methods import (
    Autoregressive,
    Eagle,
    Method,
    OnSD,
    ParallelVLM,
    PromptLookup,
    SDTree,
    SparseToDense,
    Speculative,
    SpecVLM,
)
from ..methods.cost import Acceptance
from .choice import Pace, choose, measure
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
    """The method asked for, or the best one that these models allow.

    With a draft that sees, `build_method` may make `parallel` of `speculative`; both take the same
    inputs.
    """
    if settings.method is not None:
        return settings.method
    if settings.head is not None:
        return "eagle"
    return "speculative" if pair.draft is not None else "prompt-lookup"


def needs_draft(name: str) -> bool:
    """Whether a method uses a draft model that looks at pixels."""
    return name in METHODS and METHODS[name].drafts and METHODS[name].sees


def build_method(
    settings: CaptionSettings, pair: Pair, draft_inputs: Inputs | None = None
) -> Method:
    """The method that `settings` name; where they name none, the one that these models allow and
    that measurement favours.

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
    is_open = settings.method is None and settings.window == "auto"
    is_open = is_open and not pair.target.is_sharded  # one rank can't time what all run together
    if is_open and name == "speculative" and draft_inputs is not None:
        return _measured(settings, pair, draft_inputs)
    return METHODS[name].build(settings, pair, draft_inputs)


@dataclass(frozen=True)
class Noted(Method):
    """A method, and a note on why it was chosen, which goes into the statistics of every run."""

    method: Method
    why: str

    def session(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> Session:
        session = self.method.session(model, inputs, **options)
        session.stats.note(self.why)
        return session


def _measured(settings: CaptionSettings, pair: Pair, inputs: Mapping[str, Any]) -> Method:
    """Drafting beside the target if that is faster here, else by turns."""
    pace = _pace(settings, pair, inputs)
    ways = choose(
        pace,
        partial(_seen, settings, pair),
        _prune(settings),
        is_open=settings.prune is None,
        can_prune=settings.prefill is None and settings.prefill_chunk is None,
    )
    best, next_best = ways[:2]
    told = f"{best}, before {next_best}; {pace}"
    if not best.is_beside:
        return Noted(_speculative(settings, pair, inputs), f"speculative by default: {told}")
    why = f"parallel by default, the draft without {best.prune:.0%} of the visual tokens: {told}"
    return Noted(_parallel(replace(settings, prune=best.prune), pair, inputs), why)


def _pace(settings: CaptionSettings, pair: Pair, inputs: Mapping[str, Any]) -> Pace:
    """Measured once for each order of magnitude of the prompt, and kept with the pair."""
    tokens = int(inputs["input_ids"].shape[1])
    key = tokens.bit_length(), settings.placement
    if key not in pair.paces:
        models = pair.target.model, _draft(pair)
        pair.paces[key] = measure(*models, tokens, _prune(settings), settings.placement)
    return pair.paces[key]


def _seen(settings: CaptionSettings, pair: Pair, prune: float | None) -> Acceptance:
    """Acceptance of this pair's drafts so far, kept with the pair from file to file.

    Args:
        prune: share of the visual tokens that the draft does without; `None`: it sees none.
    """
    key = prune, settings.temperature, settings.top_p, settings.prefill
    return pair.accepted.setdefault(key, Acceptance())


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
    seen = _seen(settings, pair, None if inputs is None else 0.0)
    return Speculative(_draft(pair), window=settings.window, draft_inputs=inputs, experience=seen)


def _parallel(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    prune = _prune(settings)
    options: dict[str, Any] = {"placement": settings.placement, **_window(settings)}
    options |= {"draft_inputs": inputs, "experience": _seen(settings, pair, prune)}
    assert pair.draft is not None
    options["standing"] = pair.draft.standing
    if settings.prune is not None:
        options["least"] = 0  # asked for, so taken at its word
    return ParallelVLM(_draft(pair), prune=prune, **options)


def _sd_tree(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SDTree(_draft(pair), draft_inputs=inputs)


def _onsd(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return OnSD(_draft(pair), window=settings.window, experience=_seen(settings, pair, None))


def _specvlm(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SpecVLM(_draft(pair), prune=_prune(settings), draft_inputs=inputs)


def _sparse_to_dense(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return SparseToDense(prune=_prune(settings), **_window(settings))


def _eagle(settings: CaptionSettings, pair: Pair, inputs: Inputs) -> Method:
    return Eagle(settings.head, nodes=settings.window)


METHODS: dict[str, Entry] = {
    "plain": Entry(_plain, drafts=False),
    "prompt-lookup": Entry(_prompt_lookup, drafts=False),
    "speculative": Entry(_speculative),
    "parallel": Entry(_parallel),
    "sd-tree": Entry(_sd_tree),
    "onsd": Entry(_onsd, sees=False),
    "specvlm": Entry(_specvlm),
    "sparse-to-dense": Entry(_sparse_to_dense, drafts=False),
    "eagle": Entry(_eagle, drafts=False),
}
