"""Argument checks, each with one wording: the name, the value and what is allowed."""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from reprlib import repr as brief  # of any type, size and depth, on a short line
from typing import Any

from .errors import FieldError, SoonerError, unknown


def check_whole(
    name: str, value: Any, minimum: int = 1, maximum: float = math.inf, hint: str = "",
    words: Collection[str] = (),
) -> None:  # fmt: skip
    """Require a whole number of `minimum` to `maximum`, or one of `words`.

    Args:
        name: as the caller knows it, such as `depth` or `HSD: depth`.
        hint: what else there is, such as `, or None for all`.

    Raises:
        SoonerError: names the thing, its value and the bounds.
    """
    if value in words or (type(value) is int and minimum <= value <= maximum):
        return
    bound = f"{minimum} or more" if maximum == math.inf else f"{minimum} to {maximum}"
    known = "".join(f"{word!r} or " for word in words)
    raise SoonerError(f"{name} is {value!r}; it must be {known}a whole number of {bound}{hint}")


def check_number(
    name: str,
    value: Any,
    minimum: float = 0,
    maximum: float = math.inf,
    *,
    above: bool = False,
    hint: str = "",
) -> None:
    """Require a finite number of `minimum` to `maximum`.

    Args:
        above: `minimum` itself is too small.

    Raises:
        SoonerError: names the thing, its value and the bounds.
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    in_range = is_number and math.isfinite(value) and minimum <= value <= maximum
    if in_range and not (above and value == minimum):
        return
    bound = f"be above {minimum:g}" if above else f"be {minimum:g} or more"
    if maximum < math.inf:
        bound = (
            f"{bound} and at most {maximum:g}" if above else f"lie in {minimum:g} to {maximum:g}"
        )
    text = f"{value:g}" if isinstance(value, float) else repr(value)
    raise SoonerError(f"{name} is {text}; it must {bound}{hint}")


def check_choice(kind: str, value: Any, known: Collection[str]) -> None:
    """Require one of `known`.

    Raises:
        SoonerError: names the nearest one, and all of them.
    """
    if not isinstance(value, str) or value not in known:
        raise unknown(kind, str(value), known)


REQUIRED: Any = dataclasses.MISSING
"""The default of a field that must be given; see `option`."""


@dataclass(frozen=True)
class Range:
    """What a field of settings may be, and how a command line writes it.

    Attributes:
        minimum, maximum, above, hint: of a number, as in `check_number`; without `minimum` any
            will do.
        known: the names that it may have; a mapping tells what each is, for the help.
        metavar: what its value is called on the command line; by default its type's.
        parse: makes it of the command line's text.
        names: of the option, such as `-o` and `--output`; by default the field's.
        env: a variable of the environment that sets it as well.
        positional: it is an argument of the command line, not an option.
    """

    minimum: float | None = None
    maximum: float = math.inf
    _: dataclasses.KW_ONLY
    above: bool = False
    known: Collection[str] = ()
    hint: str = ""
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    names: tuple[str, ...] = ()
    env: str | None = None
    positional: bool = False

    @property
    def bounds(self) -> str:
        """Returns the numbers that are allowed, in words; empty if any are."""
        if self.minimum is None:
            return ""
        begin = f"above {self.minimum:g}" if self.above else f"{self.minimum:g}"
        if self.maximum == math.inf:
            return begin if self.above else f"{begin} or more"
        return f"{begin} to {self.maximum:g}"


def option(default: Any, *bounds: float, **more: Any) -> Any:
    """Returns a field of settings with its range; the class's docstring says what it is.

    Args:
        default: its value where none is given; `REQUIRED` if there is none.
        bounds, more: as of `Range`.
    """
    return dataclasses.field(default=default, metadata={"range": Range(*bounds, **more)})


@functools.cache
def described(kind: Any) -> Mapping[str, str]:
    """Returns what docstrings say of each argument of a function, or of a class and its bases."""
    import docstring_parser

    texts: dict[str, str] = {}
    for base in reversed(getattr(kind, "__mro__", (kind,))):
        text = base.__doc__ if base is kind else vars(base).get("__doc__")
        for entry in docstring_parser.parse(text or "").params:
            summary = " ".join((entry.description or "").split())
            texts.update(dict.fromkeys(entry.arg_name.split(", "), summary))
    return texts


@functools.cache
def field_types(kind: type) -> Mapping[str, tuple[Any, ...]]:
    """Returns types, and words of a `Literal`, that each field of a dataclass may have."""
    hints = {}
    for name, hint in typing.get_type_hints(kind).items():
        is_union = typing.get_origin(hint) in (typing.Union, types.UnionType)
        parts = typing.get_args(hint) if is_union else (hint,)
        literal = [part for part in parts if typing.get_origin(part) is typing.Literal]
        words = [word for part in literal for word in typing.get_args(part)]
        hints[name] = (*(part for part in parts if part not in literal), *words)
    return hints


def check_fields(settings: Any, owner: str = "") -> None:
    """Require every field that has a range to be in it; `None` is, where it is of the type.

    Args:
        owner: begins the names, such as `HeadTraining: `.

    Raises:
        SoonerError: names the field, its value and its bounds.
    """
    kind: type = type(settings)
    for field in dataclasses.fields(settings):
        value, limits = getattr(settings, field.name), field.metadata.get("range")
        if limits is None:
            continue
        parts, name = field_types(kind)[field.name], owner + field.name
        words = [part for part in parts if isinstance(part, str)]
        if value is None and types.NoneType in parts:
            continue
        if limits.known:
            check_choice(field.name, value, limits.known)
        elif limits.minimum is not None and float in parts:
            check_number(
                name, value, limits.minimum, limits.maximum, above=limits.above, hint=limits.hint
            )
        elif words or limits.minimum is not None:
            least = 1 if limits.minimum is None else int(limits.minimum)
            check_whole(name, value, least, limits.maximum, limits.hint, words)


def field_names(kind: Any) -> list[str]:
    """Returns names of a dataclass's fields."""
    return [field.name for field in dataclasses.fields(kind)]


def check_keys(kind: str, mapping: Mapping[str, Any], known: type | Collection[str]) -> None:
    """Require every key to be one of `known`, or a field of that dataclass.

    Raises:
        SoonerError: names the first that is not, and the nearest.
    """
    if isinstance(known, type):
        known = field_names(known)
    for key in mapping:
        check_choice(kind, key, known)


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


UINT8 = ("uint8", "|u1")
"""The dtype of a picture, as numpy and `json_numpy` write it."""
MAX_PIXELS = 25_000_000
"""The largest picture of a robot; towers look at a few hundred pixels on a side."""


def check_pixels(dtype: Any, shape: Any) -> None:
    """Require type and shape of an RGB picture: uint8, `[height, width, 3]`.

    Args:
        dtype, shape: of an array, or as somebody says that they are.

    Raises:
        FieldError: another type or shape, or as `check_picture_size`.
    """
    if dtype not in UINT8:
        raise FieldError("image", f"image is of type {brief(dtype)}; it must be uint8, 0 to 255")
    is_shape = isinstance(shape, list) and all(type(size) is int for size in shape)
    if not is_shape or len(shape) != 3 or shape[2] != 3:
        text = f"image has shape {brief(shape)}; it must be RGB, [height, width, 3]"
        raise FieldError("image", text)
    check_picture_size(shape[1], shape[0])


def check_picture_size(width: int, height: int) -> None:
    """Require a picture that is neither empty nor huge.

    Raises:
        FieldError: it is.
    """
    if min(width, height) < 1:
        raise FieldError("image", f"image is {width} x {height}; it must have pixels")
    if width * height > MAX_PIXELS:
        raise FieldError(
            "image",
            f"image of {width} x {height} has {width * height / 1e6:.0f} megapixels; at most "
            f"{MAX_PIXELS // 1_000_000} are read, send it smaller",
        )


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
