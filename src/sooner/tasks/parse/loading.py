"""The model that parses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...errors import SoonerError
from ..loading import ModelPair, load_pair
from ..model_types import check_sees, model_type
from .decoding import eos_ids
from .families import FAMILIES
from .habits import known_habits
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
        SoonerError: as `load_pair`, a model that reads text only, has no processor or is no causal
            one, or no miniature here.
    """
    name = parser_name(model)
    kind = model_type(name, trust_remote_code)
    check_sees(name, kind, "page")
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
    family = known_habits(name, kind).family
    if family is not None:
        add_stops(pair.target.model, pair.target.tokenizer, FAMILIES[family].stops)
    return pair


def add_stops(model: Any, tokenizer: Any, stops: Sequence[str]) -> None:
    """Let a model's texts end at further tokens; those that its tokenizer lacks are left out."""
    config, unknown = model.generation_config, (None, tokenizer.unk_token_id)
    known = [tokenizer.convert_tokens_to_ids(stop) for stop in stops]
    ends = dict.fromkeys([*eos_ids(model), *(token for token in known if token not in unknown)])
    if stops and ends:
        config.eos_token_id = list(ends)
