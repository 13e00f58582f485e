"""What the repositories' `generate.py` call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import nn

from ..errors import SoonerError
from ..methods import Autoregressive, Method
from ..registry import method_types
from .repositories import Repository, repository

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
    repo, values, rest = repository(name), dict(options), dict(arguments)
    draft = rest.pop("assistant_model", None)
    _check(repo, draft, rest)
    return _RUNS.get(repo.type_name, _decode)(repo, model, draft, values, rest)


def _check(repo: Repository, draft: Any, rest: Arguments) -> None:
    if repo.drafts in ("model", "head") and draft is None:
        what = "a small model" if repo.drafts == "model" else "a head trained for this model"
        raise SoonerError(f"{repo.name}: give assistant_model, {what}, or its folder or repository")
    if repo.drafts in ("none", "texts") and draft is not None:
        raise SoonerError(f"{repo.name} drafts without a model; leave assistant_model out")
    if repo.drafts == "texts" and rest.get("drafts") is None:
        raise SoonerError(
            f"{repo.name}: give drafts, for each prompt a list of texts, and the tokenizer"
        )


def _decode(repo: Repository, model: Any, draft: Any, options: Arguments, rest: Arguments) -> Any:
    kind = method_types()[repo.type_name].load()
    if repo.drafts == "texts":
        method = kind(rest.pop("drafts"), tokenizer=_tokenizer(rest), **options)
    elif repo.drafts == "head":
        method = kind(_head(model, draft, kind.name), **options)
    elif repo.drafts == "model":
        defaults = {
            "tokenizer": _tokenizer(rest),
            "draft_tokenizer": rest.pop("assistant_tokenizer", None),
        }
        method = kind(_draft(model, draft), **options, **defaults)
    else:
        method = kind(**options)
    return model.generate(**rest, custom_generate=method)


def _tokenizer(rest: Arguments) -> Any:
    """It stays among the arguments: `generate` needs it for `stop_strings`."""
    return rest.get("tokenizer")


def _prefill(repo: Repository, model: Any, draft: Any, options: Arguments, rest: Arguments) -> Any:
    from ..sparse.prefill import MMInference

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


def _act(repo: Repository, model: Any, draft: Any, options: Arguments, rest: Arguments) -> Any:
    from ..methods import Eagle, Relaxed, Tolerance
    from ..models.openvla.statistics import ActionStatistics, ActionTokens

    bins = options.pop("bins")
    statistics = ActionStatistics.choose(model.config.norm_stats, rest.pop("unnorm_key", None))
    tolerance = Tolerance(ActionTokens.of(model.config), statistics.dims, bins)
    method: Method = Eagle(_head(model, draft), **options)
    return model.generate(**rest, custom_generate=Relaxed(method, tolerance))


DRAWN = ("do_sample", "temperature", "top_k", "top_p")
"""Arguments of `generate` that a drawing has, too."""


def _draw(repo: Repository, model: Any, draft: Any, options: Arguments, rest: Arguments) -> Any:
    from ..drawing import draw
    from ..methods import CoupledJacobi
    from ..models import canvas

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


_Run = Callable[[Repository, Any, Any, Arguments, Arguments], Any]
_RUNS: dict[str, _Run] = {"MMInference": _prefill, "Relaxed": _act, "CoupledJacobi": _draw}


def _draft(model: Any, draft: Any) -> Any:
    """Returns a draft model; one that is given by its name is loaded once, beside the target."""
    if not isinstance(draft, (str, Path)):
        return draft

    def load() -> nn.Module:
        from ..tasks.loading import load

        made: nn.Module = load(str(draft), model.device, model.dtype).model
        return made

    return _once(model, "model", draft, load)


def _head(model: Any, head: Any, method: str = "eagle") -> Any:
    if not isinstance(head, (str, Path)):
        return head

    def load() -> Any:
        from ..methods.trained import load_for

        return load_for(method, head).to(model.device, model.dtype)

    return _once(model, method, head, load)


def _once(model: Any, kind: str, name: Path | str, load: Callable[[], Any]) -> Any:
    known = _loaded.setdefault(model, {})
    if (kind, str(name)) not in known:
        known[kind, str(name)] = load()
    return known[kind, str(name)]


def defaults(repo: Repository) -> dict[str, Any]:
    """Returns what each option of a repository is where the user says nothing."""
    values: dict[str, Any] = {}
    for kind in kinds(repo):
        for name, parameter in inspect.signature(kind).parameters.items():
            if name in repo.options:
                values.setdefault(name, parameter.default)
    if "bins" in repo.options:
        values["bins"] = 0
    for name in ("seed", "guidance"):
        if name in repo.options:
            values[name] = None
    return {name: values[name] for name in repo.options}


def kinds(repo: Repository) -> list[Any]:
    """Returns the classes and functions whose options a repository takes."""
    from .. import drawing, methods
    from ..sparse.prefill import MMInference

    if repo.type_name == "MMInference":
        return [MMInference]
    more: dict[str, list[Any]] = {
        "Relaxed": [methods.Eagle, methods.Tolerance],
        "CoupledJacobi": [drawing.draw],
    }
    first: list[Any] = [method_types()[repo.type_name].load()]
    return first + more.get(repo.type_name, [])
