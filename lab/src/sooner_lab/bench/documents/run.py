"""The whole of `sooner bench documents`, part by part."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from sooner.documents import PageDraft
from sooner.documents.drafters import OCR
from sooner.errors import SoonerError

from ..parse.scores import shared_words
from .drafting import Drafts, ScannedPage, off_by, scan
from .judging import gate, goals
from .prices import Prices
from .reader import measured_epsilon
from .reading import PageArm, PageReader, PageReading, RegionNoise, arms
from .scripted import scripted_target
from .settings import BOX_PIXELS, DRAFTERS, EPSILONS, WEARS, DocumentsSettings
from .vocabulary import tokenizer
from .wear import Wear

Figures = dict[str, Any]
Progress = Callable[[str], None]
PATHS = ("drafts", "prices", "reader")


def run(settings: DocumentsSettings, progress: Progress = print) -> Figures:
    """Measure and return the result object.

    Raises:
        SoonerError: OCR is not installed, there is no reader, or the file of step times can't be
            read.

    Returns:
        `epsilon`, what `measured_epsilon` tells; `calibration`, AAL of `paper-literal` by wear;
        `readings`, a row for each part, page, draft and arm; `gate`, `goals`, `provenance`.
    """
    from sooner.provenance import provenance

    if importlib.util.find_spec("rapidocr") is None:
        raise SoonerError("sooner bench documents needs rapidocr; pip install 'sooner[docs]'")
    torch.set_num_threads(settings.threads)
    bench = _Bench(settings, progress)
    readings: list[Figures] = []
    if settings.calibrate:
        readings += bench.calibration()
    else:
        readings += bench.counts()
        readings += bench.curve()
        readings += bench.boxes()
        readings += bench.clocks()
    epsilon = None
    if settings.reader_pages and not settings.calibrate:
        epsilon = measured_epsilon(settings.reader_pages, settings.reader, progress)
    plain = asdict(settings)
    plain |= {name: None if plain[name] is None else str(plain[name]) for name in PATHS}
    return {
        "bench": "documents",
        "model": "replay",
        "settings": plain,
        "wear": WEARS[settings.wear].told,
        "priced_by": bench.prices.told,
        "provenance": provenance("cpu", "float32", settings.seed),
        "readings": readings,
        "epsilon": epsilon,
        "gate": gate(readings, settings),
        "goals": goals(readings, settings),
    }


class _Bench:
    """Targets, drafters and pages of a run."""

    def __init__(self, settings: DocumentsSettings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress
        self.prices = Prices.assumed() if settings.prices is None else Prices.read(settings.prices)
        self.tokenizer = tokenizer()
        self.drafts = Drafts(OCR(settings.threads), settings.seed, settings.drafts)
        self.counting = self._target(settings.count_layers, settings.count_width)

    def _target(self, layers: int, width: int) -> Any:
        return scripted_target(layers, width, len(self.tokenizer), self.settings.seed)

    def _reader(self, target: Any, epsilon: float, form: str = "markdown") -> PageReader:
        noise = RegionNoise(epsilon, self.settings.runaway)
        return PageReader(target, self.tokenizer, noise, form, self.settings.seed)

    def _arms(self, names: Sequence[str], nodes: int | str) -> list[PageArm]:
        known = arms(self.settings.visual, self.settings.pruned, nodes)
        return [one for one in known if one.name in names]

    def _scan(self, place: int, wear: Wear) -> ScannedPage:
        kind, number = self.settings.page_of(place)
        return scan(kind, number, wear, self.settings.seed)

    def calibration(self) -> list[Figures]:
        """`paper-literal` at every wear, and `hsd-page` beside it."""
        found: list[Figures] = []
        for wear in self.settings.wears:
            reader = self._reader(self.counting, self.settings.epsilon)
            for place in range(self.settings.pages):
                scanned = self._scan(place, WEARS[wear])
                part = {"part": "calibration", "wear": wear}
                wanted = self._arms(("paper-literal", "hsd-page"), self.settings.nodes)
                found += self._read(reader, scanned, "ocr", wanted, part)
        return found

    def counts(self) -> list[Figures]:
        """Arms with OCR's drafts, and the gate's two drafts with `hsd-page`."""
        found: list[Figures] = []
        settings = self.settings
        reader = self._reader(self.counting, settings.epsilon)
        gates = {name: self._reader(self.counting, 0.0) for name in ("truth", "other")}
        for place in range(settings.pages):
            scanned = self._scan(place, WEARS[settings.wear])
            part = {"part": "counts", "wear": settings.wear}
            found += self._read(
                reader, scanned, "ocr", self._arms(settings.arms, settings.nodes), part
            )
            if "paper-literal" not in settings.arms:
                continue
            page = self._arms(("hsd-page",), settings.nodes)
            for name, other in gates.items():
                found += self._read(other, scanned, name, page, {**part, "part": "gate"})
        return found

    def curve(self) -> list[Figures]:
        """Figure 3: by wear and by drafter; and by epsilon."""
        found: list[Figures] = []
        settings = self.settings
        both = self._arms(("hsd-page", "hsd"), settings.nodes)
        levels = [(wear, "ocr", settings.epsilon) for wear in settings.wears]
        levels += [(settings.wear, name, settings.epsilon) for name in DRAFTERS if name != "ocr"]
        levels += [(settings.wear, "ocr", each) for each in EPSILONS]
        for wear, name, epsilon in dict.fromkeys(levels):
            reader = self._reader(self.counting, epsilon)
            for place in range(settings.curve_pages):
                part = {"part": "curve", "wear": wear}
                scanned = self._scan(place, WEARS[wear])
                found += self._read(reader, scanned, name, both, part)
        return found

    def boxes(self) -> list[Figures]:
        """A target that writes boxes, with drafts whose boxes are right, and some pixels off."""
        found: list[Figures] = []
        settings = self.settings
        for pixels in (0, BOX_PIXELS):
            reader = self._reader(self.counting, settings.epsilon, "dots")
            for place in range(settings.box_pages):
                scanned = self._scan(place, WEARS[settings.wear])
                rng = np.random.default_rng([settings.seed, 4, place])
                draft = off_by(scanned.truth(), pixels, rng)
                page = self._arms(("hsd-page",), settings.nodes)
                part = {"part": "boxes", "wear": settings.wear}
                found += self._read(reader, scanned, f"boxes {pixels}", page, part, draft)
        return found

    def clocks(self) -> list[Figures]:
        """Every arm on a decoder whose forwards cost something, sizes chosen by measurement."""
        settings = self.settings
        if not settings.timed:
            return []
        reader = self._reader(self._target(settings.layers, settings.width), settings.epsilon)
        wanted = arms(settings.visual, settings.pruned, "auto")
        found: list[Figures] = []
        for place in range(-1, settings.timed):  # the first page is a warm-up
            scanned = self._scan(max(place, 0), WEARS[settings.wear])
            part = {"part": "clocks", "wear": settings.wear}
            rows = self._read(reader, scanned, "ocr", wanted, part)
            found += rows if place >= 0 else []
        return found

    def _read(
        self,
        reader: PageReader,
        scanned: ScannedPage,
        drafter: str,
        wanted: Sequence[PageArm],
        part: Figures,
        draft: PageDraft | None = None,
    ) -> list[Figures]:
        """A page by some arms, a row each."""
        written = scanned.written
        given = self.drafts(drafter, scanned) if draft is None else draft
        text = reader.text(scanned.truth())
        says, rows = reader.ids(text), []
        drafted = "\n\n".join(given.texts)
        for arm in wanted:
            self.progress(f"{part['part']}, {written.kind} {written.number}, {drafter}: {arm.name}")
            read = reader(scanned, given, arm)
            is_drafted = arm.make is not None
            rows.append(
                {
                    **part,
                    "page": f"{written.kind}-{written.number}",
                    "kind": written.kind,
                    "drafter": drafter,
                    "epsilon": reader.noise.rate,
                    "method": arm.name,
                    "is_exact": read.tokens == says,
                    "draft_seconds": given.seconds if is_drafted else 0.0,
                    "draft_quality": shared_words(drafted, text),
                    "stage_quality": _quality(read.stage_text, text),
                    **figures(read, self.prices, is_drafted),
                }
            )
        return rows


def _quality(said: str | None, text: str) -> float | None:
    return None if said is None else shared_words(said, text)


def figures(read: PageReading, prices: Prices, is_drafted: bool) -> Figures:
    """Counts, and seconds by both clocks, the drafter's not in them."""
    stats = read.stats
    blocks = {size: len(times) for size, times in stats.verify_seconds.items()}
    decode, prefill = prices.decoding(blocks), prices.prefill([read.prompt])
    cpu, cpu_prefill = stats.decode_seconds, stats.seconds["prefill"]
    for one, prompts in read.regions:
        sizes = {size: len(times) for size, times in one.verify_seconds.items()}
        # Crops are prefilled for the drafts' sake, so that decoding has to pay for it.
        decode += prices.decoding(sizes, len(prompts)) + prices.prefill(prompts)
        cpu += one.decode_seconds + one.seconds["prefill"]
    return {
        "tokens": len(read.tokens),
        "accepted": read.accepted,
        "steps": read.steps,
        "region_forwards": sum(one.nfe for one, _ in read.regions),
        "cpu_decode": cpu,
        "cpu_e2e": cpu + cpu_prefill,
        "priced_decode": decode + is_drafted * prices.draft,
        "priced_e2e": decode + prefill + is_drafted * prices.draft,
    }
