"""A simulated cluster that parses pages: pages a day, where it saturates, what it costs.

Importing this loads neither torch nor numpy, and SimPy only when a simulation begins.
"""

from .fit import fitted
from .machines import Cluster
from .plan import Scale, ScaleRow, scale
from .simulation import ClusterRun, simulate
from .stages import PageTimes, StageTimes

__all__ = [
    "Cluster",
    "ClusterRun",
    "PageTimes",
    "Scale",
    "ScaleRow",
    "StageTimes",
    "fitted",
    "scale",
    "simulate",
]
