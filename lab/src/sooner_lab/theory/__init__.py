"""Theory as code: theorems, a simulator of the draft/target pipeline, predictions.

Pure Python: importing this loads neither torch nor numpy.
"""

from .agreement import Agreement
from .costs import Curve, StepCosts
from .freerun import free_running
from .lockstep import parallel, plain, vanilla
from .pipeline import SimulatedRun
from .predict import PredictedPair, Prediction, Row, predict
from .sources import from_paper

__all__ = [
    "Agreement",
    "Curve",
    "PredictedPair",
    "Prediction",
    "Row",
    "SimulatedRun",
    "StepCosts",
    "free_running",
    "from_paper",
    "parallel",
    "plain",
    "predict",
    "vanilla",
]
