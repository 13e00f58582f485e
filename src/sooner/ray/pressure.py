"""Bounds on what Ray Data keeps: rows between stages, and figures of rows that are gone.

Ray Data bounds queues by bytes. Rows of pages have next to none, so a folder of a million files
would be queued whole; here a stage rests while enough rows wait behind it. It also keeps figures of
every block that there ever was, some kilobytes a page in the driver; here the last ones alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from typing import Any

from ray.data._internal.execution.backpressure_policy import ENABLED_BACKPRESSURE_POLICIES
from ray.data._internal.execution.backpressure_policy.backpressure_policy import BackpressurePolicy

KEY = "backpressure_policies.enabled"

MAX_ROWS = "sooner.most_rows"
"""Blocks that may wait between two stages."""

ROW_BYTES = 1024
"""Bytes of a row of a page with little text."""

RECENT = 256
"""Blocks whose figures are kept."""


class RecentFigures(list[Any]):
    """Holds a list of the last items only."""

    def extend(self, items: Iterable[Any]) -> None:
        super().extend(items)
        if len(self) > 2 * RECENT:
            del self[:-RECENT]


class RowLimit(BackpressurePolicy):
    """Lets a stage run while no more than so many blocks wait behind it."""

    def __init__(self, data_context: Any, topology: Any, resource_manager: Any) -> None:
        super().__init__(data_context, topology, resource_manager)
        self._topology = topology
        self._maximum = int(data_context.get_config(MAX_ROWS, 64))
        for op in topology:
            if isinstance(getattr(op, "_output_blocks_stats", None), list):
                op._output_blocks_stats = RecentFigures(op._output_blocks_stats)

    @property
    def name(self) -> str:
        return "RowLimit"

    def can_add_input(self, op: Any) -> bool:
        return self._waiting(op) < self._maximum

    def max_task_output_bytes_to_read(self, op: Any) -> int | None:
        return 0 if self._waiting(op) >= self._maximum else None

    def _waiting(self, op: Any) -> int:
        """Returns blocks behind an operator that nobody works on yet."""
        queued = sum(
            operator.internal_input_queue_num_blocks() for operator in op.output_dependencies
        )
        return int(self._topology[op].total_enqueued_output_blocks() + queued)


POLICIES = [*ENABLED_BACKPRESSURE_POLICIES, RowLimit]


def configured(context: Any, max_rows: int, rows_a_block: int = 1) -> Any:
    """Returns a `DataContext` for rows of pages: blocks of few rows, queues by their number, no
    output.

    Args:
        context: a copy; it is changed.
        max_rows: blocks that may wait between two stages.
        rows_a_block: above 1 for about so many, where they are small: Ray Data cuts by bytes.
    """
    warnings.filterwarnings("ignore", "The maximum number of concurrent tasks")
    size = 1 if rows_a_block == 1 else rows_a_block * ROW_BYTES  # 1 byte: a block a row
    context.target_max_block_size = context.target_min_block_size = size
    context.enable_progress_bars = context.print_on_execution_start = False
    context.enable_auto_log_stats = False
    context.max_consecutive_actor_init_deaths = 100  # killed ones, not broken ones: see `Parser`
    context.execution_options.preserve_order = False
    context.set_config(KEY, POLICIES)
    context.set_config(MAX_ROWS, max_rows)
    return context
