"""Which of rapidocr's recognition models reads a language, and where its file is."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SoonerError, unknown

ROUTES = (("PP-OCRv6", "small"), ("PP-OCRv5", "mobile"), ("PP-OCRv4", "mobile"))
"""Versions and sizes of models, the best first; the wheel has that of the first."""


@dataclass(frozen=True)
class RecognitionModel:
    """A recognition model that rapidocr can run.

    Attributes:
        language: rapidocr's name of what it is asked to read.
        version: such as PP-OCRv5.
        size: small, mobile or server.
        path: of its ONNX file, which exists.
    """

    language: str
    version: str
    size: str
    path: Path

    def settings(self) -> dict[str, Any]:
        """Returns parameters of `RapidOCR`."""
        kinds = importlib.import_module("rapidocr.utils.typings")
        return {
            "Rec.lang_type": self.language,
            "Rec.ocr_version": kinds.OCRVersion(self.version),
            "Rec.model_type": kinds.ModelType(self.size),
            "Rec.model_path": str(self.path),
        }


def recognition_model(language: str, folder: Path | None = None) -> RecognitionModel:
    """Returns the best model that reads a language and whose file is here.

    Nothing is fetched.

    Args:
        language: by rapidocr's name or another one for it, such as `korean` or `ko`.
        folder: where to look before the models that came with rapidocr.

    Raises:
        SoonerError: an unknown language; or no model of it is here: says which file is missing.
    """
    try:
        resolver = importlib.import_module("rapidocr.utils.model_resolver")
        files = resolver._MODEL_CONFIG["onnxruntime"]
    except (ImportError, AttributeError) as error:
        raise SoonerError(
            f"this version of rapidocr can't choose a model by language ({error}); install a newer "
            "one with: pip install -U 'sooner[ocr]'"
        ) from None
    kinds = importlib.import_module("rapidocr.utils.typings")
    wheel = Path(str(importlib.import_module("rapidocr").__file__)).parent / "models"
    folders = [*([folder] if folder is not None else []), wheel]
    known, missing = set[str](), list[str]()
    for version, size in ROUTES:
        route = kinds.TaskType.REC, kinds.OCRVersion(version)
        known.update(resolver.list_supported_langs(*route))
        aliases = resolver._get_aliases(resolver._get_task_config(*route), route[1])
        known.update(aliases)
        try:
            key = resolver.route_to_model_key(*route, language, kinds.ModelType(size))
        except ValueError:  # no language of that version
            continue
        file = str(files[version]["rec"][key]["model_dir"]).rpartition("/")[2]
        path = next((place / file for place in folders if (place / file).is_file()), None)
        if path is not None:
            name = resolver.normalize_lang(language)
            return RecognitionModel(str(aliases.get(name, name)), version, size, path)
        missing.append(file)
    if not missing:
        raise unknown("language", language, known)
    raise SoonerError(
        f"language '{language}' needs rapidocr's model {missing[0]}, which is not in "
        f"'{folders[0]}'; save it there as rapidocr's default_models.yaml says, or name its folder "
        "with --ocr-model-dir"
    )
