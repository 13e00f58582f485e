"""Kernels of sparse attention, a folder each: plain torch in `reference`, Triton beside it.

Importing this package imports no Triton; each folder's `triton` module does.
"""
