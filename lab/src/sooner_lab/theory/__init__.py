"""Theory as code: theorems, a simulator of the draft/target pipeline, predictions.

Pure Python: importing this loads neither torch nor numpy.
"""

from .agreement import Agreement
from .costs import Costs, Curve
from .freerun import free_running
from .lockstep import parallel, plain, vanilla
from .pipeline import Event, Run
from .predict import Pair, Prediction, Row, predict
from .sources import from_bench, from_paper

__all__ = [
    "Agreement",
    "Costs",
    "Curve",
    "Event",
    "Pair",
    "Prediction",
    "Row",
    "Run",
    "free_running",
    "from_bench",
    "from_paper",
    "parallel",
    "plain",
    "predict",
    "vanilla",
]
