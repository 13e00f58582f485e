"""Checks that every method's inputs, options and model pairs go through."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..checks import check_share, check_whole, check_whole_or
from ..engine.interface import AdapterLike
from ..errors import SoonerError, UnsupportedError
from ..models.base import keeps_states
from ..models.ranks import Ranks

HUB_SECONDS = 5.0
"""What the model hub may take to answer at all."""
PADDING = 1024
"""Vocabularies of one tokenizer differ by the padding of their embedding; more is another one."""


def positive(config: Any, *names: str, minimum: int = 1) -> None:
    """Require the named integer fields of `config` to be `minimum` or more.

    Raises:
        SoonerError: names the option, its value and the bound.
    """
    for name in names:
        check_whole(f"{type(config).__name__}: {name}", getattr(config, name), minimum)


def positive_or_auto(config: Any, name: str) -> None:
    """Require the named field of `config` to be `"auto"`, or an integer of 1 or more.

    Raises:
        SoonerError: names the option and its value.
    """
    check_whole_or(f"{type(config).__name__}: {name}", getattr(config, name))


def share(config: Any, *names: str) -> None:
    """Require the named fields of `config` to lie in 0 to 1.

    Raises:
        SoonerError: names the option, its value and the bounds.
    """
    for name in names:
        check_share(f"{type(config).__name__}: {name}", getattr(config, name))


def check_inputs(inputs: Any) -> None:
    """Require what a processor or tokenizer returns.

    Raises:
        SoonerError: a text, a list or a tensor; says what to pass.
    """
    if isinstance(inputs, Mapping):
        return
    kind = "a text" if isinstance(inputs, str) else f"a {type(inputs).__name__}"
    way = "{'input_ids': ids}, with ids of shape [rows, tokens]"
    if isinstance(inputs, str) or (isinstance(inputs, list) and inputs[:1] != []):
        way = "tokenizer(text, return_tensors='pt')"
    raise SoonerError(f"inputs are {kind}; pass what the model's processor returns, such as {way}")


def check_model(name: str, model: Any) -> None:
    """Require a loaded model that is in evaluation mode, where its forwards are the same each time.

    Args:
        name: what it is for, such as `model` or `draft`.

    Raises:
        SoonerError: a name, a class, or a model in training mode; says what to do.
    """
    if isinstance(model, str):
        raise SoonerError(
            f"{name} is the text '{model}'; load the model and pass that: "
            f"AutoModelForImageTextToText.from_pretrained('{model}'), or AutoModelForCausalLM"
        )
    if isinstance(model, type):
        raise SoonerError(f"{name} is the class {model.__name__}; pass a model that is loaded")
    if getattr(model, "training", False):
        raise SoonerError(
            f"{name} is a {type(model).__name__} in training mode, where dropout changes every "
            "forward; call its eval() first"
        )


def hub_problem() -> str | None:
    """Returns why the model hub can't be asked, in words; `None` if it answers, or is not to be
    asked.

    The hub's client tries for a minute where there is no network.
    """
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
    """Require two tokenizers to give every token the same id.

    Raises:
        SoonerError: names both tokenizers and the first token that differs.
    """
    ours, draft_vocab = target.get_vocab(), draft.get_vocab()
    if ours == draft_vocab:
        return
    token = min(
        (
            token
            for token in ours.keys() | draft_vocab.keys()
            if ours.get(token) != draft_vocab.get(token)
        ),
        key=lambda token: (ours.get(token, 1 << 30), token),
    )
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
            f"{draft_size} "
            f"and {ours}; use a draft of the target's own family"
        )
    ends = [_ends(adapter) for adapter in (target, draft)]
    if all(ends) and not ends[0] & ends[1]:
        raise SoonerError(
            f"draft and target have different tokenizers: {names} end a text with "
            f"{sorted(ends[1])} and {sorted(ends[0])}; use a draft of the target's own family"
        )


def _ends(adapter: Any) -> set[int]:
    config = getattr(adapter.model, "generation_config", None)
    end = getattr(config, "eos_token_id", None)
    if end is None:
        return set()
    return set(end) if isinstance(end, list) else {end}


def _name(thing: Any) -> str:
    return getattr(thing, "name_or_path", "") or type(thing).__name__


def check_states(method: Any, target: AdapterLike) -> None:
    """Require a method to draft chains alone if its target or its draft keeps states.

    Raises:
        UnsupportedError: it does otherwise, or the target is split by tensor parallelism; says
            what to use.
    """
    for model in (target.model, getattr(method, "draft", None)):
        if not keeps_states(model):
            continue
        name = type(getattr(model, "model", None) or model).__name__
        if not method.drafts_chains:
            raise UnsupportedError(
                f"{type(method).__name__} may draft trees or rearrange a cache, and layers of "
                f"{name} keep a state, which takes chains alone; use Autoregressive, "
                "PromptLookup or Speculative"
            )
        if Ranks.of(target.model) is not None:
            raise UnsupportedError(
                f"layers of {name} keep a state, which tensor parallelism is not known to split; "
                "load it on one device"
            )


def check_prompts(inputs: Mapping[str, Any]) -> None:
    """Require every prompt to have a token.

    Raises:
        SoonerError: names the row.
    """
    ids, mask = inputs["input_ids"], inputs.get("attention_mask")
    if not ids.shape[0]:
        raise SoonerError("input_ids hold no prompt; give at least one")
    sizes = [ids.shape[1]] * ids.shape[0] if mask is None else mask.sum(1).tolist()
    if 0 in sizes:
        raise SoonerError(
            f"the prompt of row {sizes.index(0)} is empty; give it at least one token"
        )
