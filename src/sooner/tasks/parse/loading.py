"""The model that parses."""

from __future__ import annotations

from ...errors import SoonerError
from ...models import FAMILIES
from ..loading import Pair, is_text_only, load_pair, model_type
from .identity import MINIATURE, parser_name


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
