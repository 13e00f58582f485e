"""Methods: one file each, saying how a draft is made."""

from .aligned import HSD
from .autoregressive import Autoregressive
from .base import Method, SoonerOutput
from .cost import Acceptance
from .eagle import Eagle, EagleHead
from .jacobi import GSD, CoupledJacobi
from .onsd import OnSD
from .parallel import ParallelVLM, StandingDraft
from .prompt_lookup import PromptLookup
from .sd_tree import SDTree
from .sparse_to_dense import SparseToDense
from .speculative import Speculative
from .specvlm import SpecVLM
from .tolerance import Relaxed, Tolerance

__all__ = [
    "GSD",
    "HSD",
    "Acceptance",
    "Autoregressive",
    "CoupledJacobi",
    "Eagle",
    "EagleHead",
    "Method",
    "OnSD",
    "ParallelVLM",
    "PromptLookup",
    "Relaxed",
    "SDTree",
    "SoonerOutput",
    "SparseToDense",
    "SpecVLM",
    "Speculative",
    "StandingDraft",
    "Tolerance",
]
