"""Builds the decoding method for given settings and a pair of models."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ..engine.loop import Session
from ..engine.sampling import SamplingParams
from ..errors import SoonerError, unknown
from ..methods import Method, StandingDraft
from ..methods.experience import Acceptance
from ..methods.parallel.worker import place
from ..methods.settings import MethodSettings
from ..registry import choices
from .choice import StepTimes, choose, measure
from .loading import Loaded, ModelPair
from .settings import CaptionSettings

Inputs = Mapping[str, Any] | None


def method_name(settings: CaptionSettings, pair: ModelPair) -> str:
    """Returns the method asked for, or the best one that these models allow.

    With a draft that sees, `build_method` may make `parallel` of `speculative`; both take the same
    inputs.
    """
    if settings.method is not None:
        return settings.method
    if settings.head is not None:
        from ..methods.trained import method_of

        return method_of(settings.head)
    return "speculative" if pair.draft is not None else "prompt-lookup"


def needs_draft(name: str) -> bool:
    """Returns whether a method uses a draft model that looks at pixels."""
    return name in choices() and choices()[name].draft_model == "pixels"


def build_method(
    settings: CaptionSettings, pair: ModelPair, draft_inputs: Inputs | None = None
) -> Method:
    """Returns the method that `settings` name; where they name none, the one that these models
    allow and that measurement favours.

    Args:
        draft_inputs: the prompt as the draft's own processor gives it; `None` for text-only drafts.

    Raises:
        SoonerError: an unknown name, a missing draft, or options that the method refuses.
    """
    name = method_name(settings, pair)
    if name not in choices():
        raise unknown("method", name, choices())
    if choices()[name].needs_draft and pair.draft is None:
        raise SoonerError(
            f"method '{name}' needs a draft for '{pair.target.name}'; give --draft, or "
            "--method prompt-lookup"
        )
    is_open = settings.method is None and settings.num_draft_tokens == "auto"
    is_open = is_open and not pair.target.is_sharded  # one rank can't time what all run together
    if is_open and name == "speculative" and draft_inputs is not None:
        return _measured(settings, pair, draft_inputs)
    return _build(name, settings, pair, draft_inputs)


def _build(name: str, settings: CaptionSettings, pair: ModelPair, inputs: Inputs) -> Method:
    draft, method = pair.draft, choices()[name].load()
    known = MethodSettings(
        draft=None if draft is None else draft.model,
        draft_inputs=inputs,
        head=settings.head,
        num_draft_tokens=settings.num_draft_tokens,
        prune=settings.prune,
        placement=settings.placement,
        draft_device=None if draft is None else draft.separate_device,
        standing=None if draft is None else _standing(settings, draft),
        experience=partial(_seen, settings, pair),
    )
    made: Method = method.from_settings(known)
    return made


def _standing(settings: CaptionSettings, draft: Loaded) -> StandingDraft | None:
    return draft.spawned if _is_spawned(settings, draft) else draft.standing


def _is_spawned(settings: CaptionSettings, draft: Loaded) -> bool:
    """Returns whether a draft beside the target is in a spawned process."""
    if settings.placement != "auto" or draft.model is None:  # only the first rank has it
        return settings.placement == "spawn" and draft.model is not None
    return place("auto", draft.model.device, draft.separate_device) == "spawn"


@dataclass(frozen=True)
class Noted(Method):
    """A method, and a note on why it was chosen, which goes into the statistics of every run."""

    method: Method
    why: str

    def session(
        self, model: Any, inputs: Mapping[str, Any], params: SamplingParams, **options: Any
    ) -> Session:
        session = self.method.session(model, inputs, params, **options)
        session.stats.note(self.why)
        return session


def _measured(settings: CaptionSettings, pair: ModelPair, inputs: Mapping[str, Any]) -> Method:
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
    text = f"{best}, before {next_best}; {pace}"
    if not best.is_parallel:
        by_turns = _build("speculative", settings, pair, inputs)
        return Noted(by_turns, f"speculative by default: {text}")
    why = f"parallel by default, the draft without {best.prune:.0%} of the visual tokens: {text}"
    return Noted(_build("parallel", replace(settings, prune=best.prune), pair, inputs), why)


def _pace(settings: CaptionSettings, pair: ModelPair, inputs: Mapping[str, Any]) -> StepTimes:
    """Measured once for each order of magnitude of the prompt, and kept with the pair."""
    tokens = int(inputs["input_ids"].shape[1])
    key = tokens.bit_length(), settings.placement
    if key not in pair.paces:
        models = pair.target.model, _draft(pair)
        assert pair.draft is not None
        placement = "spawn" if _is_spawned(settings, pair.draft) else settings.placement
        pair.paces[key] = measure(*models, tokens, _prune(settings), placement)
    return pair.paces[key]


def _seen(settings: CaptionSettings, pair: ModelPair, prune: float | None) -> Acceptance:
    """Acceptance of this pair's drafts so far, kept with the pair from file to file.

    Args:
        prune: share of the visual tokens that the draft does without; `None`: it sees none.
    """
    key = prune, settings.temperature, settings.top_p, settings.prefill
    return pair.accepted.setdefault(key, Acceptance())


def _draft(pair: ModelPair) -> Any:
    assert pair.draft is not None
    return pair.draft.model


def _prune(settings: CaptionSettings) -> float:
    """Returns share of the visual tokens that a draft beside the target does without."""
    return choices()["parallel"].load().prune if settings.prune is None else settings.prune
