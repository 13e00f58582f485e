"""Search of each head's pattern on samples (MMInference, algorithm 4 and appendix C.5)."""

from ..settings import SearchSettings
from .run import Search, SearchSample

__all__ = ["Search", "SearchSample", "SearchSettings"]
