"""Checks that every method's inputs, options and model pairs go through."""

from __future__ import annotations

from typing import Any

from ..checks import check_whole, check_whole_or
from ..errors import SoonerError

HUB_SECONDS = 5.0
"""What the model hub may take to answer at all."""
PADDING = 1024
"""Vocabularies of one tokenizer differ by the padding of their embedding; more is another one."""


def positive(config: Any, *names: str, minimum: int = 1) -> None:
    """Require the named integer fields of `config` to be `minimum` or more."""
    for name in names:
        check_whole(f"{type(config).__name__}: {name}", getattr(config, name), minimum)


def positive_or_auto(config: Any, name: str) -> None:
    """Require the named field of `config` to be `"auto"`, or an integer of 1 or more."""
    check_whole_or(f"{type(config).__name__}: {name}", getattr(config, name))


def hub_problem() -> str | None:
    """Returns why the model hub can't be reached, in words, sooner than its client, which tries
    for a minute; `None` if it answers, or is not to be called."""
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    if constants.HF_HUB_OFFLINE:
        return None
    try:
        get_session().head(constants.ENDPOINT, timeout=HUB_SECONDS)
    except Exception as error:  # of whatever client this version has
        return (
            f"the model hub can't be reached ({type(error).__name__}: {constants.ENDPOINT}); check "
            "the name and your connection, or give a folder"
        )
    return None


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
    ends = [_ends(adapter) for adapter in (target, draft)]
    if all(ends) and not ends[0] & ends[1]:
        raise SoonerError(
            f"draft and target have different tokenizers: {names} end a text with "
            f"{sorted(ends[1])} and {sorted(ends[0])}; use a draft of the target's own family"
        )


def _ends(adapter: Any) -> set[int]:
    config = getattr(adapter.model, "generation_config", None)
    end: Any = getattr(config, "eos_token_id", None)
    return set(end) if isinstance(end, list) else {end} - {None}


def _name(thing: Any) -> str:
    return getattr(thing, "name_or_path", "") or type(thing).__name__
