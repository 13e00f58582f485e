"""Accuracy metrics, and benchmarks read from their own files.

`metrics` compares two texts or tables; `documents` reads benchmarks of document parsing and scores
predictions. Libraries are imported where they are used: `pip install 'sooner-lab[eval]'`.
"""
