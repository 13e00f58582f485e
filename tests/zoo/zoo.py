"""All species that the installed transformers has, by model type."""

from __future__ import annotations

from dataclasses import replace

import transformers
from packaging import version
from transformers.cache_utils import Cache
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

from . import (
    cross,
    mrope,
    mrope_glm,
    mrope_more,
    own,
    plain,
    plain_cohere,
    plain_experts,
    plain_idefics,
    plain_ocr,
    prefix,
    recurrent,
    sliding,
)
from .species import Species

GROUPS = (
    mrope,
    mrope_glm,
    mrope_more,
    plain,
    plain_cohere,
    plain_experts,
    plain_idefics,
    plain_ocr,
    sliding,
    prefix,
    recurrent,
    cross,
    own,
)

IS_NEW = version.parse(transformers.__version__) >= version.parse("5.24")
HAS_STATES = hasattr(Cache, "get_conv_state")
"""Not before transformers 5.21, where layers hand out their states otherwise."""

BROKEN = ({"llama4"} if IS_NEW else set()) | (
    set() if HAS_STATES else {"minicpmv4_6", "perception_lm"}
)
"""Types that can't be tried. Llama 4's own forward fails on text: on transformers 5.24 it asks its
decoder's output for `image_outputs`, which only the model that reads pictures has. In 5.17 the
other two build no tiny model: one asks for a nested config's type, one for timm."""

INDEXED = {"glm5_next", "qwen4_exp"}
"""Types that are refused for their layers' states before 5.21, later for their index of keys."""


def _here(species: Species) -> Species:
    """Returns what is expected of a type on the installed transformers."""
    if HAS_STATES:
        return species
    if not species.trees or species.model_type in INDEXED:
        return replace(species, refused="keep a state")
    return replace(species, refused="self-check") if species.model_type == "mllama" else species


ZOO: dict[str, Species] = {
    species.model_type: _here(species)
    for group in GROUPS
    for species in group.SPECIES
    if species.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    and species.model_type not in BROKEN
}
DECODED = [species for species in ZOO.values() if not species.refused]
REFUSED = [species for species in ZOO.values() if species.refused]
