"""The model that parses."""

from __future__ import annotations

from ...errors import SoonerError
from ...models import FAMILIES
from ..loading import ModelPair, is_text_only, load_pair, model_type
from .identity import DEMO, MINIATURE, parser_name


def load_parser(
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    trust_remote_code: bool = False,
) -> ModelPair:
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
