"""The needle miniature's world: frames of colours and letters, and questions about single ones.

`world` draws clips and asks, `train` makes the weights. Importing this imports neither.
"""
