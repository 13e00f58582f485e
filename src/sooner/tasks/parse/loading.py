"""The model that parses, and what tells one from another."""

from __future__ import annotations

from ... import __version__, miniatures
from ...errors import SoonerError
from ...models import FAMILIES
from ..identity import fingerprint
from ..loading import Pair, is_text_only, load_pair, model_type
from .settings import ParseSettings

MINIATURE = "document"


def load_parser(model: str | None = None, device: str = "auto", dtype: str = "auto") -> Pair:
    """Load a model that reads pages.

    Args:
        model: hub id or folder; `None` takes the bundled `document` miniature.

    Raises:
        SoonerError: as `load_pair`, a model that reads text only, or no miniature here.
    """
    name = parser_name(model)
    kind = model_type(name)
    if is_text_only(kind):
        known = sorted(family for family in FAMILIES if not is_text_only(family))
        raise SoonerError(
            f"model '{name}' of type '{kind}' reads text only; a page needs one of "
            f"{', '.join(known)}"
        )
    return load_pair(model, device=device, dtype=dtype, miniature=MINIATURE)


def parser_name(model: str | None) -> str:
    """A model's name; without one, the miniature's folder.

    Raises:
        SoonerError: it is not in this installation.
    """
    if model is not None:
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
    return settings.digest(fingerprint(model), dtype, drafter, repr(resolution), __version__)
