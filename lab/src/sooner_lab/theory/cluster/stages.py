"""What a page costs in each stage: from the records of a run, or from a file for other machines."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from sooner.errors import SoonerError, unknown

FORMAT = 1
"""The version of the files that `StageTimes.as_dict` makes; another number is refused."""

ACCELERATED = ("processor", "vision", "prefill")
"""Keys of a record's `seconds` that block a parser's other pages, next to decoding."""


@dataclass(frozen=True)
class PageTimes:
    """Seconds of one page in each stage, as if nothing else ran.

    Attributes:
        read: of a CPU: opening the document, rendering the page.
        draft: of a CPU: text layer or OCR.
        prefill: of the accelerator: processor, vision tower and prefill; others wait meanwhile.
        decode: of the accelerator: decoding alone, drafts included; shared with other pages.
        write: of a CPU: the page's files and its record.

    Raises:
        SoonerError: a time that is negative or not finite.
    """

    read: float = 0.0
    draft: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0
    write: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or not 0 <= value < math.inf:
                raise SoonerError(f"{name} is {value!r} s; it must be finite and 0 or more")

    @property
    def cpu(self) -> float:
        """Seconds of a CPU before the parser has the page."""
        return self.read + self.draft

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> PageTimes:
        """From a page's record in `manifest.jsonl`; times that it does not have are 0."""
        took = record["seconds"]
        return cls(
            read=took.get("read", 0.0),
            draft=took.get("drafter", 0.0),
            prefill=sum(took.get(name, 0.0) for name in ACCELERATED),
            decode=took.get("decode", 0.0),
            write=took.get("write", 0.0),
        )


STAGES = tuple(stage.name for stage in fields(PageTimes))


@dataclass(frozen=True)
class StageTimes:
    """Measured stages of many pages, and what pages and machines share.

    Attributes:
        pages: one for each measured page; a simulated page is one of them, drawn at random.
        sharing: (pages under way in one parser, its pages a second over that of one page at a
            time), rising; linear between, flat behind the last. `((1, 1.0),)`: no gain.
        start: seconds from a worker's start to its first page: imports, weights, warm-up.
        driver: seconds that the one driver spends on a page, whatever the workers do.
        storage: pages a second that the storage takes at most; `None` for no limit.

    Raises:
        SoonerError: no page, or figures that can't be.
    """

    pages: tuple[PageTimes, ...]
    sharing: tuple[tuple[int, float], ...] = ((1, 1.0),)
    start: float = 0.0
    driver: float = 0.0
    storage: float | None = None
    notes: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        if not self.pages:
            raise SoonerError("no page has stage times; parse some with a model first")
        if all(page == PageTimes() for page in self.pages):
            raise SoonerError("all stage times are 0; a page takes some time somewhere")
        counts = [count for count, _ in self.sharing]
        if not counts or counts[0] != 1 or counts != sorted(set(counts)):
            raise SoonerError(f"sharing is known at {counts} pages; give rising numbers from 1 up")
        for count, gain in self.sharing:
            if not 0 < gain <= count:
                raise SoonerError(
                    f"sharing at {count} pages is {gain}; it must be above 0 and at most {count}"
                )
        for name in ("start", "driver"):
            if not 0 <= getattr(self, name) < math.inf:
                raise SoonerError(f"{name} is {getattr(self, name)} s; it must be 0 or more")
        if self.storage is not None and not self.storage > 0:
            raise SoonerError(f"storage is {self.storage} pages a second; it must be above 0")

    def gain(self, pages: int) -> float:
        """Decoding of so many pages at once over one at a time, in pages a second."""
        below = [point for point in self.sharing if point[0] <= pages]
        above = [point for point in self.sharing if point[0] > pages]
        (n0, g0) = below[-1]
        if not above:
            return g0
        n1, g1 = above[0]
        return g0 + (g1 - g0) * (pages - n0) / (n1 - n0)

    def mean(self, stage: str) -> float:
        """Seconds a page in a stage of `STAGES`, on average."""
        return sum(getattr(page, stage) for page in self.pages) / len(self.pages)

    @classmethod
    def of_records(cls, records: Iterable[Mapping[str, Any]], **shared: Any) -> StageTimes:
        """From the records of a run of `sooner parse`.

        Pages that failed, or whose text was cut, are left out: their times say nothing.

        Raises:
            SoonerError: none is left.
        """
        sound, left = [], 0
        for record in records:
            if record.get("status") in ("SUCCESS", "DRAFT") and not record.get("truncated"):
                sound.append(PageTimes.of_record(record))
            else:
                left += 1
        notes = [f"{left} pages without a whole text are left out"] if left else []
        for stage in ("read", "write"):
            if sound and not any(getattr(page, stage) for page in sound):
                notes.append(f"the records tell no seconds to {stage} a page: taken as 0")
        return cls(tuple(sound), notes=tuple(notes), **shared)

    def as_dict(self) -> dict[str, Any]:
        """Ready for JSON, and for `read` after a change."""
        return {
            "format": FORMAT,
            "pages": [asdict(page) for page in self.pages],
            "sharing": [list(point) for point in self.sharing],
            "start": self.start,
            "driver": self.driver,
            "storage": self.storage,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> StageTimes:
        """What `as_dict` made; stages that a page does not name are 0.

        Raises:
            SoonerError: another format, an unknown key, or figures that can't be.
        """
        keys = ("format", "pages", "sharing", "start", "driver", "storage")
        for key in data:
            if key not in keys:
                raise unknown("key", key, keys)
        if data.get("format") != FORMAT:
            raise SoonerError(f"format is {data.get('format')!r}; stage times have format {FORMAT}")
        pages = []
        for page in _list(data.get("pages"), "pages"):
            for stage in page:
                if stage not in STAGES:
                    raise unknown("stage", stage, STAGES)
            pages.append(PageTimes(**page))
        sharing = [_pair(point) for point in _list(data.get("sharing", [[1, 1.0]]), "sharing")]
        rest = {name: data[name] for name in ("start", "driver", "storage") if name in data}
        return cls(tuple(pages), tuple(sharing), **rest)

    @classmethod
    def read(cls, path: Path) -> StageTimes:
        """From a JSON of stage times, or from a `manifest.jsonl` or the folder that holds one.

        Raises:
            SoonerError: it can't be read, or is neither.
        """
        path = path / "manifest.jsonl" if path.is_dir() else path
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SoonerError(
                f"stage times '{path}' can't be read: {error}; give an output folder of `sooner "
                "parse`, its manifest.jsonl, or a JSON of stage times"
            ) from error
        try:
            if path.suffix == ".jsonl":
                return cls.of_records(json.loads(line) for line in text.splitlines() if line)
            return cls.from_dict(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SoonerError(
                f"'{path}' holds no stage times ({type(error).__name__}: {error}); give an output "
                "folder of `sooner parse`, its manifest.jsonl, or a JSON of stage times"
            ) from error
        except SoonerError as error:
            raise SoonerError(f"'{path}': {error}") from error


def _list(value: Any, name: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise SoonerError(f"{name} is {type(value).__name__}; it must be a list")
    return value


def _pair(point: Any) -> tuple[int, float]:
    count, gain = point
    return int(count), float(gain)
