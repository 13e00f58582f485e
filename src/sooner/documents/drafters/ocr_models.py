"""Which of rapidocr's recognition models reads a language, and where its file is."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import SoonerError, unknown

ROUTES = (("PP-OCRv6", "small"), ("PP-OCRv5", "mobile"), ("PP-OCRv4", "mobile"))
"""Versions and sizes of models, the best first; the wheel has that of the first."""

VERSION, SIZE = ROUTES[0]


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


def languages() -> dict[str, str]:
    """Returns languages by rapidocr's names for them (its LangRec, and what its models list) and
    other names: the name that its models go by.
    """
    names: dict[str, str] = {}
    for version, size in ROUTES:
        routes = _routes(version)
        known = {
            str(language)
            for route in routes.get(size) or ()
            for language in route["supported_langs"]
        }
        names |= {name: name for name in known}
        aliases = {**(_of(version).get("aliases") or {}), **(routes.get("aliases") or {})}
        names |= {str(other): str(name) for other, name in aliases.items() if str(name) in known}
    return names


def recognition_model(language: str, folder: Path | None = None) -> RecognitionModel:
    """Returns the best model that reads a language and whose file is here.

    Nothing is fetched.

    Args:
        language: by rapidocr's name or another one for it, such as `korean` or `ko`.
        folder: where to look before the models that came with rapidocr.

    Raises:
        SoonerError: an unknown language; or no model of it is here: says which file is missing.
    """
    known = languages()
    name = known.get(language.strip().lower())
    if name is None:
        raise unknown("language", language, known)
    folders = [*([folder] if folder is not None else []), _model_folder()]
    missing = []
    for version, size in ROUTES:
        file = _file(name, version, size)
        if file is None:
            continue
        path = next((place / file for place in folders if (place / file).is_file()), None)
        if path is not None:
            return RecognitionModel(name, version, size, path)
        missing.append(file)
    raise SoonerError(
        f"language '{language}' needs rapidocr's model {missing[0]}, which is not in "
        f"'{folders[0]}'; save it there as rapidocr's default_models.yaml says, or name its folder "
        "with --ocr-model-dir"
    )


def _file(language: str, version: str, size: str) -> str | None:
    """Returns the model's file name; `None` if that version has none for the language."""
    for route in _routes(version).get(size) or ():
        if language in route["supported_langs"]:
            files = _config().get("onnxruntime", {}).get(version, {}).get("rec", {})
            place = (files.get(route["model_key"]) or {}).get("model_dir", "")
            return str(place).rpartition("/")[2] or None
    return None


def _routes(version: str) -> Mapping[str, Any]:
    return _of(version).get("rec") or {}


def _of(version: str) -> Mapping[str, Any]:
    return _config().get("model_routes", {}).get(version) or {}


def _config() -> Mapping[str, Any]:
    """Returns rapidocr's own table of models.

    Raises:
        SoonerError: this version of rapidocr has none.
    """
    try:
        resolver = importlib.import_module("rapidocr.utils.model_resolver")
        config: Mapping[str, Any] = resolver._MODEL_CONFIG
    except (ImportError, AttributeError) as error:
        raise SoonerError(
            f"this version of rapidocr can't choose a model by language ({error}); install a newer "
            "one with: pip install -U 'sooner[ocr]'"
        ) from None
    return config


def _model_folder() -> Path:
    package = importlib.import_module("rapidocr")
    return Path(str(package.__file__)).parent / "models"
