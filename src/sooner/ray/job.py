"""`RayJob`: documents into a folder of results by all machines of a cluster.

`sooner parse --ray` is: plan documents into rows of pages, read, draft, parse and write
each in an actor (`parser`), and a driver that counts pages and finishes documents behind their last
ones.
"""

from __future__ import annotations

import json
import re
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..documents import fetched
from ..errors import SoonerError
from ..tasks.parse.delivery import PageTask, document_at
from ..tasks.parse.job import DocumentJob
from ..tasks.parse.output import DocumentWork, ParseOutput
from ..tasks.parse.result import Counts
from .cluster import LOCAL, connected
from .nodes import CPUS, LIGHT, check_nodes, connected_nodes, gpus_of_actors
from .parser import IN_FLIGHT, Batch, Parser, Row, batch_of, rows_of

PLANNED = 16
"""Documents that are planned by one task, so that a task is worth its overhead."""

WAVE = 4000
"""Documents of one dataset: Ray Data keeps rows that wait, and some kilobytes of figures of every
page, in the driver until its end."""

WAITING = 16
"""Pages that may wait behind a stage, besides those that are under way; sizes the object store."""

DEPTH = 20
"""Errors around that of this library, at most."""

ROUNDS = 20
"""Datasets one after another in which no document may come to its end."""

RAISED = re.compile(r"(?!ray\.)[A-Za-z_][\w.]*(Error|Exception)\b")
"""A traceback's last line, if the error is not Ray's own."""


@dataclass(kw_only=True)
class RayJob(DocumentJob):
    """Parses documents on Ray.

    What `ParseJob` does in one process, page objects included, so a run can be killed anywhere and
    the same command, with Ray or without, goes on where it was. A page whose process died three
    times is set aside. Paths of documents are whole.

    Attributes:
        inputs: where documents were found; each machine must see them.
        parser: arguments of `Parser`, besides those that stand here.
        address: of a cluster, see `cluster.connected`.
        parsers: actors that parse; by default one a GPU, or one a machine where there is none.
        pages_in_flight: pages under way at once in each.
        debug: let Ray and the actors print.
    """

    inputs: Sequence[str]
    parser: Mapping[str, Any] = field(default_factory=dict)
    address: str = LOCAL
    parsers: int | None = None
    pages_in_flight: int = IN_FLIGHT
    debug: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pages: dict[int, dict[int, bool]] = {}  # by document, and if they have files

    def run(self) -> Counts:
        """Do what is left to be done.

        Raises:
            SoonerError: no cluster, no room in it, a machine that differs, a model that can't be
                loaded, a folder that can't be written; or, with `stop_on_error`, what is wrong with
                a page. What is finished is kept.
        """
        under_way = (self.parsers or 1) * self.pages_in_flight + 4 * WAITING
        with connected(self.address, under_way, debug=self.debug):
            nodes = connected_nodes()
            parsers = self.parsers or int(sum(node.get("GPU", 0) for node in nodes)) or len(nodes)
            gpus = gpus_of_actors(nodes, parsers, "--actors")
            check_nodes(self.inputs, self.parser.get("model"), self.store)
            self._is_seen, self._is_done = (bytearray(len(self.documents)) for _ in range(2))
            try:
                self._run_until_done(parsers, gpus)
            finally:
                with suppress(SoonerError):  # would hide what happened
                    self.delivery.rebuild_manifest()
        self._check_pages()
        return self.counts

    def _run_until_done(self, parsers: int, gpus: float) -> None:
        """Run the pipeline over one wave of documents after another.

        Ray goes on with a task of a lost machine by running it again and leaving out as many rows
        as there were. What is left to be done of documents has changed meanwhile, so those of
        which rows were lost are in the next wave, too.
        """
        rounds = 0
        while left := [n for n, is_done in enumerate(self._is_done) if not is_done]:
            if rounds >= ROUNDS:
                raise SoonerError(
                    f"{len(left)} documents did not come to their ends, since machines went again "
                    "and again; what is finished is kept, the same command goes on there"
                )
            self._pages.clear()
            try:
                self._run(left[:WAVE], parsers, gpus)
            except SoonerError:
                raise
            except Exception as error:
                raise _sooner_error(error) from error
            rounds = 0 if self._is_done.count(0) < len(left) else rounds + 1

    def _run(self, numbers: list[int], parsers: int, gpus: float) -> None:
        self._since = 0.0
        dataset = self._dataset(numbers, parsers, gpus)
        batches = dataset.iter_batches(batch_size=None, prefetch_batches=0)
        for row in (row for batch in batches for row in rows_of(batch)):
            self._since = self._since or time.perf_counter()  # all actors are up
            self._count_row(row)

    def _dataset(self, numbers: list[int], parsers: int, gpus: float) -> Any:
        """Returns a dataset of rows that went through all stages; nothing runs before they are
        asked for."""
        import ray.data
        from ray.data import DataContext

        warnings.filterwarnings("ignore", "The maximum number of concurrent tasks")
        context = DataContext.get_current().copy()
        context.target_max_block_size = context.target_min_block_size = 1  # a block a row
        context.enable_progress_bars = context.print_on_execution_start = False
        context.enable_auto_log_stats = False
        context.max_consecutive_actor_init_deaths = 100  # of killed ones: see `Parser`
        context.execution_options.preserve_order = False
        with DataContext.current(context):
            entries = [
                {"document": json.dumps([n, item.source, item.place.as_posix()])}
                for n, item in ((n, self.documents[n]) for n in numbers)
            ]
            tasks = -(-len(entries) // PLANNED)
            rows: Any = ray.data.from_items(entries, override_num_blocks=tasks)
            rows = rows.map_batches(
                plan,
                fn_args=[self.output],
                batch_size=None,
                num_cpus=LIGHT,
                compute=ray.data.TaskPoolStrategy(size=max(2, parsers)),
            )
            return rows.map_batches(
                Parser,
                fn_constructor_kwargs={
                    **self.parser,
                    "pages_in_flight": self.pages_in_flight,
                    "output": self.output,
                },
                batch_size=None,
                num_cpus=CPUS,
                num_gpus=gpus or None,
                # Not a pool of one size: an actor whose machine is lost gets the place of one that
                # has nothing to do.
                compute=ray.data.ActorPoolStrategy(
                    min_size=1,
                    max_size=parsers,
                    initial_size=parsers,
                    max_tasks_in_flight_per_actor=self.pages_in_flight,
                    max_concurrent_calls_per_actor=self.pages_in_flight,
                ),
            )

    def _count_row(self, row: Row) -> None:
        """Count a row that went through all stages; rows come in any order, and may come twice."""
        counts = json.loads(row["counts"])
        number, page, line = counts.pop("document"), int(row["page"]), json.loads(row["line"])
        if not self._is_seen[number]:
            self._is_seen[number] = True
            self._open(**counts)
        self._is_done[number] |= page < 0
        pages = self._pages.get(number, {})
        if self._is_done[number] or page in pages:
            return
        self._pages[number] = pages
        pages[page] = bool(line["files"])
        self._count(line)
        if len(pages) >= counts["left"]:  # its last page
            del self._pages[number]
            work = DocumentWork(
                PageTask(row["path"], row["place"], row["hash"], self.output.settings_hash, 0),
                of=counts["of"],
                numbers=self.output.intake.pages.select(counts["of"]),
                written={page for page, is_written in pages.items() if is_written},
            )
            self._is_done[number] = self.output.finish(work)
            self._count_failure(work.failure)


def plan(batch: Batch, output: ParseOutput) -> Iterator[dict[str, list[Any]]]:
    """Yields what is left to be done of documents: a row a page, or one of no page.

    Args:
        batch: its `document` is JSON of number, source and place, since names of files need not be
            Unicode.
        output: says what is done.

    Raises:
        SoonerError: the store of the results can't be read or written.
    """
    for entry in batch["document"]:
        for row in _rows(output, *json.loads(entry)):
            yield batch_of([row])


def _rows(output: ParseOutput, number: int, source: str, place: str) -> Iterator[Row]:
    with fetched(document_at(source, Path(place))) as document:
        work = output.plan(document)
    counts = {
        "document": number, "of": work.of, "left": len(work.left), "before": work.done,
        "aside": work.aside, "failure": work.failure,
    }  # fmt: skip
    for page in work.left or [-1]:
        yield {
            # Columns are Unicode, which names of files need not be.
            "path": source.encode(errors="backslashreplace").decode(),
            "place": place.encode(errors="backslashreplace").decode(),
            "hash": work.whole.input_hash,
            "page": page,
            "line": "null",
            "counts": json.dumps(counts),
        }


def _sooner_error(error: BaseException) -> Exception:
    """Returns the error of this library that Ray has wrapped, or one line about Ray's own."""
    cause: Any = error
    for _ in range(DEPTH):
        if isinstance(cause, SoonerError):
            return SoonerError(str(getattr(cause, "cause", None) or cause))
        cause = getattr(cause, "cause", None) or getattr(cause, "__cause__", None)
    lines = str(error).strip().splitlines() or [repr(error)]
    # Ray puts advice behind what a stage raised.
    raised = [line for line in lines if RAISED.match(line)] or lines
    return SoonerError(f"ray failed: {' '.join(raised[-1].split())[:300]}")
