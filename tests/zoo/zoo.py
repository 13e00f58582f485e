"""All species that the installed transformers has, by model type."""

from __future__ import annotations

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
BROKEN = {"llama4"} if IS_NEW else set()
"""Types whose own forward fails on text: Llama 4 on transformers 5.24 asks its decoder's output for
`image_outputs`, which only the model that reads pictures has."""

ZOO: dict[str, Species] = {
    species.model_type: species
    for group in GROUPS
    for species in group.SPECIES
    if species.model_type in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES
    and species.model_type not in BROKEN
}

HAS_STATES = hasattr(Cache, "get_conv_state")
"""Not in transformers 5.17, where layers hand out their states otherwise."""

DECODED = [
    species for species in ZOO.values() if not species.refused and (species.trees or HAS_STATES)
]
REFUSED = [species for species in ZOO.values() if species.refused]
