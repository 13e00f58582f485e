"""Triton kernels of sparse attention, a file each.

Importing this package imports no Triton; each kernel's file does.
"""
