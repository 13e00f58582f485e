"""The zoo: a tiny random model of every causal type of transformers that reads pictures.

It tells today's truth: which types are decoded exactly, and which are refused, each for a reason.
"""
