"""The whole of `sooner bench canvas`, part by part."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from sooner.drawing import Drawing
from sooner.methods import Autoregressive, Method

from ..imagine.arms import BUILDERS, draw_rows
from ..imagine.settings import ImagineBenchSettings
from ..imagine.subjects import Subject
from .judge import PictureLaw, judge
from .judging import gate, goals
from .settings import (
    ARMS,
    CLIP,
    COLD,
    DEFAULT_START,
    EXACT_ARMS,
    JUDGED_WINDOW,
    LEVEL,
    PICTURE,
    POOL,
    RHOS,
    CanvasSettings,
)
from .target import law_subject
from .trained import TrainedLaw

Figures = dict[str, Any]
Progress = Callable[[str], None]
KINDS = (PICTURE, CLIP)


def run(settings: CanvasSettings, progress: Progress = print) -> Figures:
    """Measure and return the result object.

    Returns:
        `readings`, a row for each part, kind, arm, start and window, with what each drawing took;
        `quality`, what the judge says of each arm's pictures; `entropy` of each kind, or `real`,
        nats of textures by a trained decoder; `gate`, `goals`, `provenance`.
    """
    from sooner.provenance import provenance

    torch.set_num_threads(settings.threads)
    bench = _Bench(settings, progress)
    result: Figures = {
        "bench": "canvas",
        "model": "leaves" if bench.trained else "law",
        "settings": {
            **asdict(settings),
            "model": None if settings.model is None else settings.model.name,
        },
        "sigma": None if bench.trained else settings.law(PICTURE).sigma,
        "provenance": provenance("cpu", "float32", settings.seed),
        "readings": [],
        "gate": [],
        "goals": [],
    }
    if settings.calibrate:
        return result | {"readings": bench.calibration()}
    result["quality"] = bench.quality()
    if bench.trained is None:
        result["entropy"] = bench.entropy()
        result["readings"] = [*bench.oracle(), *bench.counts(), *bench.dependence()]
    else:
        result["real"] = bench.trained.real(settings.judged, settings.seed)
        result["readings"] = bench.counts()
    result["readings"] += bench.clocks()
    return result | {
        "gate": gate(result, settings),
        "goals": goals(result["readings"], settings),
    }


class _Bench:
    """Targets of a run."""

    def __init__(self, settings: CanvasSettings, progress: Progress) -> None:
        self.settings, self.progress = settings, progress
        self.trained = None if settings.model is None else TrainedLaw(settings.model)
        self.kinds = KINDS if self.trained is None else (PICTURE,)

    def subject(self, kind: str, rho: float | None = None) -> Subject:
        """Whose forwards are counted."""
        settings = self.settings
        if self.trained is not None:
            return self.trained.subject
        sizes = settings.count_layers, settings.count_width
        law = settings.law(kind, rho)
        return law_subject(law, *sizes, settings.seed, settings.given(kind))

    def method(self, arm: str, window: int | None, start: str | None) -> Method:
        """An arm of `bench imagine`."""
        if arm == "plain":
            return Autoregressive()
        assert window is not None
        assert start is not None
        return BUILDERS[arm](window, start, ImagineBenchSettings(group=self.settings.group))

    def calibration(self) -> list[Figures]:
        """Plain's forwards and SJD's from random codes, at every dependence."""
        found = []
        for kind in KINDS:
            for rho in RHOS:
                subject, window = self.subject(kind, rho), JUDGED_WINDOW[kind]
                part = {"part": "calibration", "rho": rho}
                found.append(self._count(subject, "sjd", window, "random", part))
        return found

    def oracle(self) -> list[Figures]:
        """Codes that hang on nothing, drafted from their own distribution: none is refused, so
        that the number of forwards is known."""
        found = []
        for kind in KINDS:
            subject, window = self.subject(kind, 0.0), JUDGED_WINDOW[kind]
            wanted = 1 - (1 - subject.new) // (window + 1)  # the prefill says the first code
            for arm in ARMS:
                part = {"part": "oracle", "wanted": wanted}
                found.append(self._count(subject, arm, window, "last", part))
        return found

    def counts(self) -> list[Figures]:
        """Every coupling from every start at every window, and plain decoding."""
        found = []
        for kind in self.kinds:
            subject, part = self.subject(kind), {"part": "counts"}
            found.append(self._count(subject, "plain", None, None, part))
            for start in self.settings.starts_of(kind):
                for window in self.settings.windows_of(kind):
                    for arm in ARMS:
                        found.append(self._count(subject, arm, window, start, part))
        return found

    def dependence(self) -> list[Figures]:
        """What `rho` does to each coupling, from random codes."""
        found = []
        for kind in KINDS:
            for rho in RHOS:
                subject, part = self.subject(kind, rho), {"part": "dependence", "rho": rho}
                for arm in ARMS:
                    found.append(self._count(subject, arm, JUDGED_WINDOW[kind], "random", part))
        return found

    def clocks(self) -> list[Figures]:
        """Seconds of decoding on a decoder whose forwards cost something, a drawing at a time and
        the arms in turns; the first drawing is a warm-up."""
        settings = self.settings
        found: list[Figures] = []
        for kind in self.kinds if settings.timed else ():
            window, sizes = JUDGED_WINDOW[kind], (settings.layers, settings.width)
            subject = (
                self.subject(kind)
                if self.trained is not None
                else law_subject(settings.law(kind), *sizes, settings.seed, settings.given(kind))
            )
            starts = dict.fromkeys(("random", DEFAULT_START[kind]))
            arms: list[tuple[str, int | None, str | None]] = [("plain", None, None)]
            arms += [(arm, window, start) for start in starts for arm in ARMS]
            rows: list[Figures] = [
                {"part": "clocks", "kind": kind, "arm": arm, "start": start, "window": size,
                 "rho": settings.rho, "tokens": subject.new, "forwards": [], "cpu_seconds": []}
                for arm, size, start in arms
            ]  # fmt: skip
            for number in range(-1, settings.timed):
                for row in rows:
                    self.progress(f"clocks, {kind} {number + 1}: {row['arm']} from {row['start']}")
                    method = self.method(row["arm"], row["window"], row["start"])
                    seed = settings.seed + max(number, 0)
                    drawing, forwards = draw_rows(subject, [max(number, 0)], method, seed)
                    if number >= 0:
                        row["forwards"] += forwards
                        row["cpu_seconds"].append(drawing.stats.decode_seconds)
            found += rows
        return found

    def entropy(self) -> Figures:
        """Mean nats of a code of drawings by plain decoding."""
        found = {}
        for kind in KINDS:
            law = self.settings.law(kind)
            drawn = self._draw(self.subject(kind), "plain", self.settings.drawings)[0].tokens
            given = self.settings.given(kind)
            found[kind] = float(law.entropies(drawn)[:, given:].mean())
        return found

    def quality(self) -> Figures:
        """What the judge says of pictures: by exact arms, by wrong ones, and of the same law."""
        settings = self.settings
        law: PictureLaw = self.trained or self.settings.law(PICTURE)
        count, subject = settings.judged, self.subject(PICTURE)
        # Drawings of the law for each arm its own, so that no two p-values hang together.
        arms: list[tuple[str, Figures, bool]] = [
            *((arm, {}, True) for arm in ("plain", *EXACT_ARMS)),
            ("gsd", {}, False),
        ]
        arms.append(("plain", {"temperature": COLD}, False))
        found = []
        for order, (arm, options, exact) in enumerate(arms):
            name = f"T = {COLD:g}" if options else {"gsd": "GSD"}.get(arm, arm)
            self.progress(f"quality: {count} pictures by {name}")
            drawn = self._draw(subject, arm, count, order, **options)[0].tokens
            other = law.sample(count, settings.seed + 100 + order)
            found.append({"arm": name, "exact": exact, **judge(drawn, other, law)})
        blind = law.sample(count, settings.seed + 200)
        other = law.sample(count, settings.seed + 201)
        for name, drawn in (
            ("random codes", _random(blind, law.codes)),
            ("codes of other pictures", _shuffled(blind)),
        ):
            found.append({"arm": name, "exact": False, **judge(drawn, other, law)})
        self.progress(f"quality: {settings.nulls} null splits")
        alarms = 0
        pool = None if self.trained is None else law.sample(POOL, settings.seed + 300)
        told = None if pool is None else law.log_likelihood(pool)  # of a decoder: once
        for split in range(settings.nulls):
            if pool is None or told is None:
                both, known = law.sample(2 * count, settings.seed + 1000 + split), None
            else:
                generator = torch.Generator().manual_seed(settings.seed + 1000 + split)
                picked = torch.randperm(len(pool), generator=generator)[: 2 * count]
                both, known = pool[picked], told[picked].split(count)
            alarms += judge(both[:count], both[count:], law, known)["p"] < LEVEL
        share = alarms / settings.nulls
        return {"arms": found, "nulls": settings.nulls, "false_alarms": share, "drawings": count}

    def _draw(
        self, subject: Subject, arm: str, count: int, order: int = 0, **options: Any
    ) -> tuple[Drawing, list[int]]:
        """One batch at the judged window, from the start that the method takes by default."""
        kind = subject.kind
        method = self.method(arm, JUDGED_WINDOW[kind], DEFAULT_START[kind])
        return draw_rows(subject, range(count), method, self.settings.seed + order, **options)

    def _count(
        self, subject: Subject, arm: str, window: int | None, start: str | None, part: Figures
    ) -> Figures:
        """The forwards of each drawing, all of them in one batch."""
        where = "" if window is None else f" from {start}, L={window}"
        self.progress(f"{part['part']}, {subject.kind}: {arm}{where}")
        method = self.method(arm, window, start)
        count, seed = range(self.settings.drawings), self.settings.seed
        _, forwards = draw_rows(subject, count, method, seed)
        row = {"rho": self.settings.rho, "kind": subject.kind, "arm": arm, "start": start}
        return {**row, "window": window, "tokens": subject.new, "forwards": forwards, **part}


def _random(like: Tensor, codes: int) -> Tensor:
    """Uniform codes."""
    generator = torch.Generator().manual_seed(int(like.sum()))
    return torch.randint(codes, like.shape, generator=generator)


def _shuffled(drawings: Tensor) -> Tensor:
    """Each place's codes dealt out anew among the drawings: what a place says is right, what it
    hangs on is lost."""
    generator = torch.Generator().manual_seed(int(drawings.sum()))
    order = torch.rand(drawings.shape, generator=generator).argsort(0)
    return drawings.gather(0, order)
