"""Training a draft head: what the target says is recorded, then the head learns its states."""

from .dataset import DataSet, TrainingSample
from .recording import record
from .settings import HeadTraining
from .training import train

__all__ = ["DataSet", "HeadTraining", "TrainingSample", "record", "train"]
