"""`RayJob`: documents into a folder of results, by all machines of a cluster."""

from __future__ import annotations

import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ..documents import Document
from ..errors import SoonerError
from ..tasks.parse.manifest import Line, Manifest
from ..tasks.parse.page_records import PageTask
from ..tasks.parse.result import FAILED, PARTIAL, Counts
from .cluster import LOCAL, connected
from .nodes import check_nodes
from .pipeline import Pipeline
from .planning import write_list, write_rest
from .rows import Row, is_page, rows_of
from .shares import Shares

FINISHING = 16
"""Documents whose files are written at once, behind their last pages."""

ROUNDS = 20
"""How often what was lost with machines is done again."""

LOOK = 1.0
"""Seconds between two looks at the object stores."""

RAISED = re.compile(r"(?!ray\.)[A-Za-z_][\w.]*(Error|Exception)\b")
"""A traceback's last line, if the error is not Ray's own."""

OnPage = Callable[[Line, Counts], None]


@dataclass
class Starvation:
    """Counts what the parsers waited for.

    Attributes:
        pages: seconds in which a parser had no page at all, its loading left out.
        busy: seconds from when all actors are up to the last page, times parsers.
    """

    pages: float = 0.0
    busy: float = 0.0

    @property
    def share(self) -> float:
        return min(self.pages / self.busy, 1.0) if self.busy else 0.0

    def report(self) -> str:
        """Returns lines for the end of a run."""
        return (
            f"parsers waited for pages {self.pages:.1f} s of {self.busy:.1f} s ({self.share:.0%})"
        )


@dataclass
class RayJob:
    """Parses documents on Ray: plan, draft, parse and write are stages of Ray Data.

    What `ParseJob` does in one process, page objects included, so a run can be killed anywhere and
    the same command, with Ray or without, goes on where it was. Stages are the classes of this
    package; rows have no pixels. A page whose process died three times is set aside.

    Attributes:
        documents: what, from `sooner.documents.find_documents`, whole paths.
        inputs: where these were found; each machine must see them.
        pipeline: how, and where to.
        address: of a cluster, see `cluster.connected`.
        parsers, drafters: actors; by default as many as `Shares.plan` says.
        stop_on_error: end at the first page that fails.
        on_page: told about each page.
        debug: let Ray and the actors print.
        counts, starvation: of the run so far.
        memory: most bytes of the object stores that were in use at once, by Ray's figures.
        longest: pages of the longest document so far.
    """

    documents: Sequence[Document]
    inputs: Sequence[str]
    pipeline: Pipeline
    address: str = LOCAL
    parsers: int | None = None
    drafters: int | None = None
    stop_on_error: bool = False
    on_page: OnPage | None = None
    debug: bool = False
    counts: Counts = field(default_factory=Counts)
    starvation: Starvation = field(default_factory=Starvation)
    memory: int = 0
    longest: int = 0

    def __post_init__(self) -> None:
        delivery = self.pipeline.delivery
        self.store = delivery.store
        for document in self.documents[:1]:
            if delivery.is_in_place_of(document):
                delivery.check(document)
        self.store.check()
        self.counts.documents = len(self.documents)
        self.manifest = Manifest(self.store)
        self._open: dict[int, _Open] = {}
        self._looked = 0.0
        self._expected = 0  # pages of the documents that were opened
        self._finishing: dict[Any, int] = {}

    def run(self) -> Counts:
        """Do what is left to be done.

        Raises:
            SoonerError: no cluster, no room in it, a machine that differs, a model that can't be
                loaded, a folder that can't be written; or, with `stop_on_error`, what is wrong with
                a page. What is finished is kept.
        """
        pipeline = self.pipeline
        limit = pipeline.under_way(self.parsers or 1)
        with connected(self.address, limit, debug=self.debug) as cluster:
            drafters = self.drafters if pipeline.has_drafter else 0
            self.shares = Shares.plan(cluster.nodes, self.parsers, drafters)
            name = None if pipeline.model is None else pipeline.model.name
            check_nodes(self.store, self.inputs, name)
            self._is_seen, self._is_done = (bytearray(len(self.documents)) for _ in range(2))
            listed = write_list(self.store, self.documents)
            self.documents = ()  # this process keeps no list of what may be a million files
            try:
                self._run_until_done(listed)
            finally:
                with suppress(SoonerError):  # would hide what happened
                    self.store.remove(listed)
                    self.manifest.rebuild()
        pipeline.intake.check(self.longest)
        return self.counts

    def _run_until_done(self, listed: str) -> None:
        """Run the pipeline, and again over documents of which rows were lost.

        Ray goes on with a task of a lost machine by running it again and leaving out as many rows
        as there were. What is left to be done of documents has changed meanwhile.
        """
        for _ in range(ROUNDS):
            self._run(listed)
            if (left := self._is_done.count(0)) == 0:
                return
            write_rest(self.store, listed, self._is_done)
            self._open.clear()
        raise SoonerError(
            f"{left} documents did not come to their ends, since machines went again and again; "
            "what is finished is kept, the same command goes on there"
        )

    def _run(self, listed: str) -> None:
        last = time.monotonic()
        first: float | None = None
        try:
            for batch in self.pipeline.rows(listed, self.shares).iter_batches(
                batch_size=None, prefetch_batches=0
            ):
                for row in rows_of(batch):
                    last = time.monotonic()
                    first = first or last  # all actors are up
                    self.counts.seconds = last - first
                    self._took(row)
            self._finish_documents(0)
        except SoonerError:
            raise
        except Exception as error:
            raise _ours(error) from error
        finally:
            self.starvation.busy = self.counts.seconds * self.shares.parsers

    def _took(self, row: Row) -> None:
        """Count a row that went through all stages."""
        data = json.loads(row["told"])
        if not is_page(row):
            self._opened(row, data)
            return
        number = int(data["document"])
        if self._is_done[number] or number in self._finishing.values():
            return  # twice, see `_run_until_done`
        entry = self._open.setdefault(number, _Open())  # rows come in any order
        if int(row["page"]) in entry.pages:
            return  # twice as well
        line = json.loads(row["line"])
        entry.pages[int(row["page"])] = line["status"] != FAILED
        self.starvation.pages += float(row["starved"])
        self.manifest.append(line)
        if time.monotonic() > self._looked + LOOK:
            self._look_at_memory()
        self._count(line)
        self._close_if_done(number, row)
        self._check_failure(line)

    def _check_failure(self, line: Line) -> None:
        if self.stop_on_error and line["status"] == FAILED:
            where = f"'{line['source']}'" + (f", page {line['page']}" if line["page"] else "")
            raise SoonerError(f"{where}: {line['reason']}")

    def _count(self, line: Line) -> None:
        counts, status = self.counts, line["status"]
        counts.failed += status == FAILED
        counts.done += status != FAILED
        counts.partial += status == PARTIAL
        # Pages may come before the row that says how many their document has.
        counts.total = max(self._expected, counts.done + counts.failed)
        if self.on_page is not None:
            self.on_page(line, counts)

    def _look_at_memory(self) -> None:
        import ray

        self._looked = time.monotonic()
        total = ray.cluster_resources().get("object_store_memory", 0.0)
        free = ray.available_resources().get("object_store_memory", 0.0)
        self.memory = max(self.memory, int(total - free))

    def _opened(self, row: Row, counts: dict[str, int]) -> None:
        number = counts["document"]
        self.longest = max(self.longest, counts["of"])
        if not self._is_seen[number]:
            self._is_seen[number] = True
            self.counts.opened += 1
            self._expected += counts["todo"]
            self.counts.total = max(self._expected, self.counts.done + self.counts.failed)
            self.counts.before += counts["before"]
            self.counts.aside += counts["aside"]
        if counts["todo"]:
            entry = self._open.setdefault(number, _Open())
            entry.of, entry.todo = counts["of"], counts["todo"]
            self._close_if_done(number, row)
        else:
            self._is_done[number] = True

    def _close_if_done(self, number: int, row: Row) -> None:
        """With the last page of a document its files are written."""
        entry = self._open[number]
        if entry.of is None or len(entry.pages) < entry.todo:
            return
        del self._open[number]
        task = PageTask(row["path"], row["place"], row["hash"], self.pipeline.settings_hash, 0)
        written = [page for page, is_written in entry.pages.items() if is_written]
        finishing = _finish_task().remote(self.pipeline.finisher(), task, entry.of, written)
        self._finishing[finishing] = number
        self._finish_documents(FINISHING)

    def _finish_documents(self, limit: int) -> None:
        """Wait until no more documents than these are being finished."""
        import ray

        while len(self._finishing) > limit:
            (ready,), _ = ray.wait([*self._finishing], num_returns=1)
            is_done, failed = ray.get(ready)
            self._is_done[self._finishing.pop(ready)] = is_done
            if failed is not None:
                self._expected += 1
                self.manifest.append(failed)
                self._count(failed)
                self._check_failure(failed)


@dataclass
class _Open:
    """A document that is under way.

    Attributes:
        of: pages that it has; `None` until that row is there.
        todo: pages that are to come.
        pages: those that came, and whether they have files.
    """

    of: int | None = None
    todo: int = 0
    pages: dict[int, bool] = field(default_factory=dict)


@functools.cache
def _finish_task() -> Any:
    """One for all documents: each that is made is sent to every process anew."""
    import ray

    from .write import finish_document

    return ray.remote(num_cpus=0, max_retries=-1)(finish_document)


def _ours(error: BaseException) -> Exception:
    """Returns the error of this library that Ray has wrapped, or one line about Ray's own."""
    for cause in _chain(error):
        if isinstance(cause, SoonerError):
            return SoonerError(str(getattr(cause, "cause", None) or cause))
    lines = str(error).strip().splitlines() or [repr(error)]
    # Ray puts advice behind what a stage raised.
    raised = [line for line in lines if RAISED.match(line)] or lines
    return SoonerError(f"ray failed: {' '.join(raised[-1].split())[:300]}")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        cause = getattr(error, "cause", None)
        error = cause if isinstance(cause, BaseException) else error.__cause__
