"""Pattern tables by their model's fingerprint: those in this folder, and those of this machine."""

from __future__ import annotations

import hashlib
import logging
from functools import cache
from pathlib import Path

from ...engine.interface import Prompt
from ...errors import SoonerError
from ...io import cache_folder, check_writable
from ...models import Adapter
from ..modality import PromptLayout
from ..search import Search, SearchSample
from ..table import PatternTable, fingerprint

logger = logging.getLogger("sooner")

SHIPPED = Path(__file__).parent
CACHED = "searched on this machine"


def load_table(adapter: Adapter) -> tuple[PatternTable, str] | None:
    """Returns the table for a model's fingerprint and where it comes from, if there is one: what
    was searched on this machine comes before what is shipped.

    A file that can't be read, or that is another model's, counts as none and is named in the log.
    """
    cached = cached_path(adapter)
    for path, source in ((cached, CACHED), (SHIPPED / cached.name, "shipped with sooner")):
        if path.is_file():
            try:
                return PatternTable.load(path, adapter), source
            except SoonerError as error:
                _warn(f"{error}; it is ignored")
    return None


def search_table(adapter: Adapter, prompt: Prompt) -> PatternTable:
    """Returns patterns that are searched on a prompt of one row, and saves them for `load_table`.

    Raises:
        SoonerError: the file can't be written, which is tried first.
    """
    path = cached_path(adapter)
    check_writable(path, "$XDG_CACHE_HOME")
    logger.warning("searching patterns on %d tokens, once; takes minutes", prompt.lengths[0])
    sample = SearchSample(lambda: prompt, PromptLayout.of(prompt, 0))
    table = Search(adapter, [sample]).run()
    table.save(path)
    return table


def cached_path(adapter: Adapter) -> Path:
    """Returns the file for what is searched on this machine."""
    return cache_folder("patterns") / file_name(fingerprint(adapter))


def file_name(text: str) -> str:
    """Returns the name of a table's file by its fingerprint."""
    return f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


@cache
def _warn(text: str) -> None:
    """Once for each reason."""
    logger.warning("%s", text)
