"""Repositories for the model hub: `model.generate(..., custom_generate="org/parallelvlm")`.

Its functions are what their `generate.py` call. `tools/hub_pages.py` of the source tree writes
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from .errors import SoonerError
from .methods import Autoregressive, Method
from .methods.context import same_tokenizer
from .registry import method_types

Drafts = Literal["none", "model", "head", "texts"]
"""What a repository drafts with: nothing that is given, `assistant_model` (a model, a folder or a
repository), a trained head for the target (the same, or a folder of one), or `drafts`, texts."""

_loaded: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()
"""Drafts of a target that were given by their names, so that a call in a loop loads them once."""


def decode(
    type_name: str,
    model: Any,
    options: Mapping[str, Any],
    arguments: Mapping[str, Any],
    drafts: Drafts = "none",
) -> Any:
    """Generate with a method.

    Args:
        type_name: its class of `sooner`.
        model: the target, a loaded HF model.
        options: fields of the class.
        arguments: everything else; `assistant_model` is the draft or the head, itself or the name
            of a folder or repository, and `drafts` are the texts of those that align them.
        drafts: what it drafts with.

    Returns:
        What `model.generate` returns; with `return_dict_in_generate=True` the output's `stats` are
        the run's counts and times.

    Raises:
        SoonerError: as the method; a draft that is missing, or given where none is used.
    """
    rest, kind = dict(arguments), method_types()[type_name].load()
    draft = _assistant(type_name, rest, drafts)
    tokenizer = rest.get("tokenizer")  # `generate` needs it as well, for `stop_strings`
    if drafts == "texts":
        if rest.get("drafts") is None:
            raise SoonerError(
                f"{type_name}: give drafts, for each prompt a list of texts, and the tokenizer"
            )
        method = kind(rest.pop("drafts"), tokenizer=tokenizer, **options)
    elif drafts == "head":
        method = kind(_named(model, kind.name, draft), **options)
    elif drafts == "model":
        same_tokenizer(tokenizer, rest.pop("assistant_tokenizer", None))
        method = kind(_named(model, "model", draft), **options)
    else:
        method = kind(**options)
    return model.generate(**rest, custom_generate=method)


def _assistant(name: str, arguments: dict[str, Any], drafts: Drafts) -> Any:
    """Takes the draft out of the arguments."""
    draft = arguments.pop("assistant_model", None)
    if drafts in ("model", "head") and draft is None:
        what = "a small model" if drafts == "model" else "a head trained for this model"
        raise SoonerError(f"{name}: give assistant_model, {what}, or its folder or repository")
    if drafts in ("none", "texts") and draft is not None:
        raise SoonerError(f"{name} drafts without a model; leave assistant_model out")
    return draft


def prefill(model: Any, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Generate plainly behind a sparse prefill; as `decode`, with options of `MMInference`."""
    from .sparse.prefill import MMInference

    rest, values = dict(arguments), dict(options)
    _assistant("MMInference", rest, "none")
    table = values.pop("table", None)
    sparse = MMInference(**values) if table is None else MMInference.load(table, **values)
    with sparse(model):
        return model.generate(**rest, custom_generate=Autoregressive())


def act(model: Any, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Generate actions within a tolerance; as `decode`, with options of `Eagle`, and `bins`."""
    from .methods import Eagle, Relaxed, Tolerance
    from .models.openvla.statistics import ActionStatistics, ActionTokens

    rest, values = dict(arguments), dict(options)
    head = _assistant("Relaxed", rest, "head")
    statistics = ActionStatistics.choose(model.config.norm_stats, rest.pop("unnorm_key", None))
    tolerance = Tolerance(ActionTokens.of(model.config), statistics.dims, values.pop("bins"))
    method: Method = Eagle(_named(model, "eagle", head), **values)
    return model.generate(**rest, custom_generate=Relaxed(method, tolerance))


DRAWN = ("do_sample", "temperature", "top_k", "top_p")
"""Arguments of `generate` that a drawing has, too."""


def draw(model: Any, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Draw pictures, `[rows, codes]`, with options of `CoupledJacobi` and `sooner.draw`."""
    from . import drawing
    from .methods import CoupledJacobi
    from .models import canvas

    rest, values = dict(arguments), dict(options)
    _assistant("scd", rest, "none")
    extra = {name: values.pop(name) for name in ("count", "seed", "guidance")}
    extra = {name: value for name, value in extra.items() if value is not None}
    # As in `generate`: drawn if `do_sample` says so, and Janus puts what it is told into a config.
    config = rest.pop("generation_config", None) or model.generation_config
    if (mode := config.get_generation_mode()) not in ("sample", "greedy_search"):
        raise SoonerError(f"scd draws or takes the likeliest code; {mode.value} can't be honoured")
    extra["do_sample"] = False
    for name in DRAWN:  # what nobody says is the canvas's own
        value = rest.pop(name, None)
        value = getattr(config, name, None) if value is None else value
        extra |= {} if value is None else {name: value}
    ids = rest.pop("inputs", None)
    inputs = {
        "input_ids": rest.pop("input_ids", ids),
        "attention_mask": rest.pop("attention_mask", None),
    }
    rest.pop("use_model_defaults", None)
    if left := [name for name, value in rest.items() if value is not None]:
        raise SoonerError(
            f"scd draws by the canvas of the model, which knows no {', '.join(left)}; leave it out"
        )
    prompt = {name: value for name, value in inputs.items() if value is not None}
    return drawing.draw(canvas(model), prompt, CoupledJacobi(**values), **extra).tokens


def _named(model: Any, method: str, draft: Any) -> Any:
    """Returns a draft model or a head; one that is named is loaded once for each target."""
    if not isinstance(draft, (str, Path)):
        return draft
    known, key = _loaded.setdefault(model, {}), (method, str(draft))
    if key not in known and method == "model":
        from .tasks.loading import load

        known[key] = load(str(draft), model.device, model.dtype).model
    elif key not in known:
        from .methods.trained import load_for

        known[key] = load_for(method, draft).to(model.device, model.dtype)
    return known[key]
