"""Training a draft head: records the target's outputs and states, then fits the head to them."""

from .dataset import DataSet, TrainingSample
from .recording import record
from .settings import HeadTraining
from .training import train

__all__ = ["DataSet", "HeadTraining", "TrainingSample", "record", "train"]
