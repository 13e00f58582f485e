"""The model that parses, and what tells one run's results from another's."""

from __future__ import annotations

from pathlib import Path

from ... import miniatures
from ...errors import SoonerError
from ...models import FAMILIES
from ..identity import RECORDS, fingerprint
from ..loading import Pair, is_text_only, load_pair, model_type
from .settings import ParseSettings

MINIATURE = "document"

DEMO = "miniature"

"""Name of the bundled miniature on the command line."""


def parser_name(model: str | None) -> str:
    """A model's name; the bundled miniature's folder for `None` or `"miniature"`.

    Raises:
        SoonerError: it is not in this installation; or a folder that does not exist.
    """
    if model is not None and model != DEMO:
        if model.startswith(("/", ".", "~")) and not Path(model).is_dir():
            raise SoonerError(f"model folder '{model}' does not exist; check the path")
        return model
    if MINIATURE in miniatures.names():
        target = miniatures.find(MINIATURE).target
        if (target / "config.json").is_file():
            return str(target)
    raise SoonerError(
        f"the '{MINIATURE}' miniature is not in this installation; give a model with --model"
    )


def settings_hash(
    settings: ParseSettings, model: str, dtype: str, drafter: str, resolution: object
) -> str:
    """Hash of all that decides a page's result besides its document.

    Args:
        model: its name, from `parser_name`.
        drafter: from `drafter_hash`.
    """
    return settings.digest(fingerprint(model), dtype, drafter, repr(resolution), RECORDS)


def load_parser(
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> Pair:
    """Load a model that reads pages.

    Args:
        model: hub id or folder; `None` or `"miniature"` takes the bundled `document` miniature.
        trust_remote_code: run a checkpoint's own code, as that of dots.ocr.

    Raises:
        SoonerError: as `load_pair`, a model that reads text only or has no processor, or no
            miniature here.
    """
    name = parser_name(model)
    kind = model_type(name, trust_remote_code)
    if is_text_only(kind):
        known = sorted(family for family in FAMILIES if not is_text_only(family))
        raise SoonerError(
            f"model '{name}' of type '{kind}' reads text only; a page needs one of "
            f"{', '.join(known)}"
        )
    pair = load_pair(
        None if model == DEMO else model,
        device=device,
        dtype=dtype,
        miniature=MINIATURE,
        trust_remote_code=trust_remote_code,
    )
    if not hasattr(pair.target.processor, "image_processor"):
        raise SoonerError(
            f"model '{name}' of type '{kind}' comes with a tokenizer, but no processor of "
            "pictures; make its inputs by its own code and decode them by sooner.generate"
        )
    return pair
