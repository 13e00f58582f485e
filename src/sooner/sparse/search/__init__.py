"""Search of each head's pattern on samples (MMInference, algorithm 4 and appendix C.5)."""

from .run import Search, SearchSample
from .space import SearchSettings

__all__ = ["Search", "SearchSample", "SearchSettings"]
