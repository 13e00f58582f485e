"""Texts and tables compared, one metric a file; all are between 0 and 1.

>>> edit_distance("a page", "a pane")  # 0 is the same
0.16666666666666666
>>> word_accuracy("a page", "a pane")  # 1 is the same, here and in the others
0.5
"""

from .bleu import bleu
from .edit import edit_distance
from .meteor import meteor
from .overlap import Overlap, overlap
from .teds import teds, teds_structure
from .words import split_words, word_accuracy

__all__ = [
    "Overlap",
    "bleu",
    "edit_distance",
    "meteor",
    "overlap",
    "split_words",
    "teds",
    "teds_structure",
    "word_accuracy",
]
