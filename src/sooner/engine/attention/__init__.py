"""Attention of a block of tokens over a row's committed slots and over the block itself.

What a block sees follows from lengths and ancestor bits on the device, so no mask is built, grouped
keys and values are never expanded and shapes stay what they are. One operator (`context.py`) has an
implementation for CPUs, one for GPUs, and the reference for everything else; `context.py` puts it
in the place of a decoder's own attention while a run lasts.
"""
