"""Builds the decoding method for given settings and a pair of models, and plans their threads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..errors import SoonerError
from ..methods import Method, StandingDraft
from ..methods.base import MethodSettings
from ..methods.draft_length import Acceptance
from ..methods.parallel.worker import place
from ..methods.threads import Threads
from ..registry import choices
from .loading import Loaded, ModelPair
from .settings import CaptionSettings

Inputs = Mapping[str, Any] | None


def method_name(settings: CaptionSettings, pair: ModelPair) -> str:
    """Returns the method asked for, or the one that these models and this machine allow: a draft
    beside the target where it has a core or a device of its own, else by turns."""
    if settings.method is not None:
        return settings.method
    if settings.head is not None:
        from ..methods.trained import method_of

        return method_of(settings.head)
    if (draft := pair.draft) is None:
        return "prompt-lookup"
    if settings.num_draft_tokens != "auto" or draft.is_text:
        return "speculative"
    where = place(settings.placement, draft.model.device, draft.separate_device)
    return "speculative" if where == "thread" else "parallel"


def build_method(
    settings: CaptionSettings, pair: ModelPair, draft_inputs: Inputs | None = None
) -> Method:
    """Returns the method that `settings` name; where they name none, that of `method_name`.

    Args:
        draft_inputs: the prompt as the draft's own processor gives it; `None` for text-only drafts.

    Raises:
        SoonerError: a missing draft, or options that the method refuses.
    """
    name = method_name(settings, pair)
    if choices()[name].needs_draft and pair.draft is None:
        raise SoonerError(
            f"method '{name}' needs a draft for '{pair.target.name}'; give --draft, or "
            "--method prompt-lookup"
        )
    is_free = settings.method is None and settings.prune is None
    if name == "parallel" and is_free and settings.prefill is not None:
        settings = replace(settings, prune=0.0)  # a pruner may drop tokens before they are ranked
    draft, method = pair.draft, choices()[name].load()

    def experience(prune: float | None) -> Acceptance:
        """Returns the acceptance of this pair's drafts so far, which is kept from file to file."""
        key = prune, settings.temperature, settings.top_p, settings.prefill
        return pair.accepted.setdefault(key, Acceptance())

    known = MethodSettings(
        draft=None if draft is None else draft.model, draft_inputs=draft_inputs, head=settings.head,
        num_draft_tokens=settings.num_draft_tokens, prune=settings.prune,
        placement=settings.placement, draft_device=None if draft is None else draft.separate_device,
        standing=None if draft is None else _standing(settings, draft), experience=experience,
    )  # fmt: skip
    built: Method = method.from_settings(known)
    return built


def _standing(settings: CaptionSettings, draft: Loaded) -> StandingDraft | None:
    """Returns the process that a draft beside the target has for all files, if it has one."""
    placement = settings.placement
    if placement == "auto":
        placement = place("auto", draft.model.device, draft.separate_device)
    return draft.spawned if placement == "spawn" else draft.standing


def plan_threads(
    pair: ModelPair, requested: int | None = None, placement: str | None = "auto"
) -> Threads:
    """Returns threads of the target, and of a draft that works beside it in a process of its own.

    Args:
        pair: the models, loaded.
        requested: `--threads`.
        placement: where a draft would run, see `ParallelVLM`; `None`: none works beside the target.

    Raises:
        SoonerError: fewer than one thread is asked for.
    """
    processes, draft = 0, pair.draft
    if draft is not None and placement is not None and draft.device.type == "cpu":
        processes = int(place(placement, draft.device) != "thread")
    return Threads.plan(requested, is_miniature=pair.miniature is not None, processes=processes)
