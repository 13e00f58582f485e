"""Repositories for the model hub: `model.generate(..., custom_generate="org/parallelvlm")`.

`run` is what their `generate.py` calls. `tools/hub_pages.py` of the source tree writes them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import nn

from . import __version__
from .errors import SoonerError, did_you_mean
from .methods import Autoregressive, Method
from .registry import method_types

Drafts = Literal["none", "model", "head", "texts"]
"""What a repository drafts with: nothing that is given, `assistant_model` (a model, a folder or a
repository), a trained head for the target (the same, or a folder of one), or `drafts`, texts."""

REPOSITORIES: dict[str, tuple[str, Drafts]] = {
    "speculative": ("Speculative", "model"),
    "parallelvlm": ("ParallelVLM", "model"),
    "specvlm": ("SpecVLM", "model"),
    "sd-tree": ("SDTree", "model"),
    "onsd": ("OnSD", "model"),
    "sparse-to-dense": ("SparseToDense", "none"),
    "prompt-lookup": ("PromptLookup", "none"),
    "eagle": ("Eagle", "head"),
    "dflash": ("DFlash", "head"),
    "ddtree": ("DDTree", "head"),
    "assistant": ("Assistant", "head"),
    "hsd": ("HSD", "texts"),
    "mminference": ("MMInference", "none"),
    "spec-vla": ("Relaxed", "head"),
    "scd": ("CoupledJacobi", "none"),
}
"""The class of `sooner` behind each repository, and what it drafts with."""

Arguments = dict[str, Any]
"""Arguments of `model.generate`, as it hands them to a repository's function."""

_loaded: WeakKeyDictionary[Any, dict[tuple[str, str], Any]] = WeakKeyDictionary()
"""Drafts of a target that were given by their names, so that a call in a loop loads them once."""


def run(name: str, model: Any, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> Any:
    """Generate with the method of a repository.

    Args:
        name: of the repository.
        model: the target, a loaded HF model.
        options: those of the repository that its function was given.
        arguments: everything else; `assistant_model` is the draft or the head, itself or the name
            of a folder or repository, and `drafts` are the texts of those that align them.

    Returns:
        What `model.generate` returns; with `return_dict_in_generate=True` the output's `stats` are
        the run's counts and times. Pictures: codes, `[rows, codes]`.

    Raises:
        SoonerError: as the method; a draft that is missing, or given where none is used.
    """
    if name not in REPOSITORIES:
        raise SoonerError(
            f"sooner {__version__} has no repository '{name}'{did_you_mean(name, REPOSITORIES)}; a "
            "newer sooner may"
        )
    type_name, drafts = REPOSITORIES[name]
    values, rest = dict(options), dict(arguments)
    draft = rest.pop("assistant_model", None)
    if drafts in ("model", "head") and draft is None:
        what = "a small model" if drafts == "model" else "a head trained for this model"
        raise SoonerError(f"{name}: give assistant_model, {what}, or its folder or repository")
    if drafts in ("none", "texts") and draft is not None:
        raise SoonerError(f"{name} drafts without a model; leave assistant_model out")
    if drafts == "texts" and rest.get("drafts") is None:
        raise SoonerError(
            f"{name}: give drafts, for each prompt a list of texts, and the tokenizer"
        )
    if type_name == "MMInference":
        return _prefill(model, values, rest)
    if type_name == "Relaxed":
        return _act(model, draft, values, rest)
    if type_name == "CoupledJacobi":
        return _draw(model, values, rest)
    kind = method_types()[type_name].load()
    tokenizer = rest.get("tokenizer")  # `generate` needs it as well, for `stop_strings`
    if drafts == "texts":
        method = kind(rest.pop("drafts"), tokenizer=tokenizer, **values)
    elif drafts == "head":
        method = kind(_head(model, draft, kind.name), **values)
    elif drafts == "model":
        values |= {
            "tokenizer": tokenizer,
            "draft_tokenizer": rest.pop("assistant_tokenizer", None),
        }
        method = kind(_draft(model, draft), **values)
    else:
        method = kind(**values)
    return model.generate(**rest, custom_generate=method)


def _prefill(model: Any, options: Arguments, rest: Arguments) -> Any:
    from .sparse.prefill import MMInference

    table = options.pop("table", None)
    sparse = MMInference(**options) if table is None else MMInference.load(_file(table), **options)
    with sparse(model):
        return model.generate(**rest, custom_generate=Autoregressive())


def _file(table: Path | str) -> Path:
    """Returns a table's file, which may lie in a repository: `org/name/patterns.json`."""
    path, parts = Path(table), str(table).split("/")
    if path.exists() or len(parts) < 3 or path.is_absolute():
        return path
    from huggingface_hub import hf_hub_download

    try:
        return Path(hf_hub_download("/".join(parts[:2]), "/".join(parts[2:])))
    except Exception as error:  # a dozen kinds, of HTTP, of names, of files
        raise SoonerError(
            f"table '{table}' is no file here, and the hub gave none ({type(error).__name__}); "
            "make one with `sooner search patterns`"
        ) from error


def _act(model: Any, draft: Any, options: Arguments, rest: Arguments) -> Any:
    from .methods import Eagle, Relaxed, Tolerance
    from .models.openvla.statistics import ActionStatistics, ActionTokens

    bins = options.pop("bins")
    statistics = ActionStatistics.choose(model.config.norm_stats, rest.pop("unnorm_key", None))
    tolerance = Tolerance(ActionTokens.of(model.config), statistics.dims, bins)
    method: Method = Eagle(_head(model, draft), **options)
    return model.generate(**rest, custom_generate=Relaxed(method, tolerance))


DRAWN = ("do_sample", "temperature", "top_k", "top_p")
"""Arguments of `generate` that a drawing has, too."""


def _draw(model: Any, options: Arguments, rest: Arguments) -> Any:
    from .drawing import draw
    from .methods import CoupledJacobi
    from .models import canvas

    extra = {name: options.pop(name) for name in ("count", "seed")}
    guidance = options.pop("guidance")
    extra |= {} if guidance is None else {"guidance": guidance}
    # As in `generate`: drawn if `do_sample` says so, and Janus puts what it is told into a config.
    config = rest.pop("generation_config", None) or model.generation_config
    extra |= {"do_sample": False} | _drawn_with(config)
    extra |= {name: rest.pop(name) for name in DRAWN if rest.get(name) is not None}
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
    values = {name: value for name, value in inputs.items() if value is not None}
    return draw(canvas(model), values, CoupledJacobi(**options), **extra).tokens


def _drawn_with(config: Any) -> dict[str, Any]:
    """Returns how a generation config draws; what it leaves open is the canvas's own.

    Raises:
        SoonerError: it asks for beams or another search.
    """
    if (mode := config.get_generation_mode()) not in ("sample", "greedy_search"):
        raise SoonerError(f"scd draws or takes the likeliest code; {mode.value} can't be honoured")
    values = {name: getattr(config, name, None) for name in DRAWN}
    return {name: value for name, value in values.items() if value is not None}


def _draft(model: Any, draft: Any) -> Any:
    """Returns a draft model; one that is given by its name is loaded once, beside the target."""
    if not isinstance(draft, (str, Path)):
        return draft

    def load() -> nn.Module:
        from .tasks.loading import load

        made: nn.Module = load(str(draft), model.device, model.dtype).model
        return made

    return _once(model, "model", draft, load)


def _head(model: Any, head: Any, method: str = "eagle") -> Any:
    if not isinstance(head, (str, Path)):
        return head

    def load() -> Any:
        from .methods.trained import load_for

        return load_for(method, head).to(model.device, model.dtype)

    return _once(model, method, head, load)


def _once(model: Any, kind: str, name: Path | str, load: Callable[[], Any]) -> Any:
    known = _loaded.setdefault(model, {})
    if (kind, str(name)) not in known:
        known[kind, str(name)] = load()
    return known[kind, str(name)]
