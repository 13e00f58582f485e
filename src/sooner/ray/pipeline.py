"""`Pipeline`: the stages of parsing as one Ray Data dataset, from documents to manifest lines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..storage.attempts import Attempts
from ..tasks.parse.delivery import Delivery
from ..tasks.parse.drafters import TIMEOUT
from ..tasks.parse.finishing import Finisher
from ..tasks.parse.manifest import Manifest
from ..tasks.parse.page_records import PageRecords
from ..tasks.parse.plan import DocumentPlanner, Intake
from ..tasks.parse.settings import ParseSettings
from .ocr import OCRStage
from .parser import IN_FLIGHT, PagesParser, ParserStage
from .planning import PlanRows, read_list
from .shares import Shares
from .write import WriteStage

WAITING = 16
"""Pages that may wait behind a stage, besides those that are under way."""

AHEAD, WRITING = 2, 4
"""Pages that a drafter, and a writer, is given at once: the next one waits beside it."""


@dataclass(frozen=True)
class RayModel:
    """What `ParserStage` loads on every node."""

    name: str
    device: str = "auto"
    dtype: str = "auto"
    trust_remote_code: bool = False
    threads: int | None = None


@dataclass(frozen=True)
class Pipeline:
    """How documents are planned, drafted, parsed and written.

    Attributes:
        delivery: where to.
        settings_hash: tells results of these settings from others'.
        model: `None` takes drafts as they are.
        settings: how pages are parsed.
        intake: which pages, how large.
        drafter: as `OCRStage` takes it.
        timeout: seconds that it has for a page.
        pages_in_flight: pages under way at once in a parser.
        fresh: do again what was done before.
        told_of: notes for the pages of a document.
        pages_at_once: pages of a row's block, above 1 for pages that take milliseconds.
        load: makes another parser than that of `model`.
    """

    delivery: Delivery
    settings_hash: str
    model: RayModel | None = None
    settings: ParseSettings | None = None
    intake: Intake = field(default_factory=Intake)
    drafter: str = "auto"
    timeout: float = TIMEOUT
    pages_in_flight: int = IN_FLIGHT
    fresh: bool = False
    notes_of: Callable[[Path], list[str]] | None = None
    pages_at_once: int = 1
    load: Callable[[], PagesParser] | None = None

    @property
    def drafts_only(self) -> bool:
        """No model verifies anything."""
        return self.model is None and self.load is None

    @property
    def has_drafter(self) -> bool:
        return self.drafter != "none"

    def under_way(self, parsers: int) -> int:
        """Returns most pages that are somewhere between the first stage and the last."""
        return (parsers * self.pages_in_flight + 4 * WAITING) * self.pages_at_once

    def finisher(self) -> Finisher:
        """Writes documents whose pages are there."""
        store = self.delivery.store
        records, manifest = PageRecords(store), Manifest(store)
        return Finisher(self.intake, records, manifest, self.delivery, self.drafts_only)

    def rows(self, listed: str, shares: Shares) -> Any:
        """Returns a dataset of rows that went through all stages; nothing runs before they are
        asked for.

        Args:
            listed: name of the list of documents, see `planning`.
            shares: what each stage may take.
        """
        import ray.data
        from ray.data import DataContext

        from .pressure import configured

        context = configured(DataContext.get_current().copy(), WAITING, self.pages_at_once)
        with DataContext.current(context):
            start = [{"store": str(self.delivery.folder), "list": listed}]
            rows: Any = ray.data.from_items(start)
            # Another share than planning's, or both would be one task that plans all in turn.
            rows = rows.flat_map(read_list, num_cpus=shares.light / 2)
            rows = rows.map_batches(
                self._planning().__call__,
                batch_size=None,
                num_cpus=shares.light,
                compute=ray.data.TaskPoolStrategy(size=max(2, shares.parsers)),
            )
            if shares.drafters:
                rows = rows.map_batches(
                    OCRStage,
                    fn_constructor_args=(self.drafter, self.intake, self.timeout),
                    batch_size=None,
                    num_cpus=shares.heavy,
                    compute=_pool(shares.drafters, AHEAD),
                )
            rows = rows.map_batches(
                ParserStage,
                fn_constructor_kwargs=self._parsing(),
                batch_size=None,
                num_cpus=shares.heavy,
                num_gpus=shares.gpus or None,
                compute=_pool(shares.parsers, self.pages_in_flight, self.pages_in_flight),
            )
            return rows.map_batches(
                WriteStage,
                fn_constructor_kwargs=self._writing(),
                batch_size=None,
                num_cpus=shares.light,
                compute=_pool(max(1, shares.parsers // 2), WRITING),
            )

    def _planning(self) -> PlanRows:
        finisher = self.finisher()
        planner = DocumentPlanner(
            self.intake,
            finisher.records,
            finisher.manifest,
            self.delivery,
            self.settings_hash,
            self.fresh,
            self.drafts_only,
        )
        return PlanRows(planner, finisher, self.pages_at_once)

    def _parsing(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "settings": self.settings,
            "intake": self.intake,
            "pages_in_flight": self.pages_in_flight,
            "attempts": Attempts(self.delivery.store),
            "settings_hash": self.settings_hash,
            "notes_of": self.notes_of,
            "load": self.load,
        }
        if (model := self.model) is not None:
            options |= {
                "model": model.name,
                "device": model.device,
                "dtype": model.dtype,
                "threads": model.threads,
                "trust_remote_code": model.trust_remote_code,
            }
        return options

    def _writing(self) -> dict[str, Any]:
        return {
            "output": self.delivery,
            "intake": self.intake,
            "settings_hash": self.settings_hash,
            "fresh": self.fresh,
            "drafts_only": self.drafts_only,
            "finishes": False,
        }


def _pool(size: int, under_way: int, at_once: int = 1) -> Any:
    """Returns actors of a stage. Not a pool of one size: an actor whose machine is lost gets the
    place of one that has nothing to do.
    """
    from ray.data import ActorPoolStrategy

    return ActorPoolStrategy(
        min_size=1,
        max_size=size,
        initial_size=size,
        max_tasks_in_flight_per_actor=under_way,
        max_concurrent_calls_per_actor=at_once,
    )
