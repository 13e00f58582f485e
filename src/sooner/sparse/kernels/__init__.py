"""Triton kernels of sparse attention, a file each; `reference` computes the same in plain torch.

Importing this package imports no Triton; each kernel's file does.
"""
