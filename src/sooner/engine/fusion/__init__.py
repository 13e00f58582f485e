"""RMSNorm, residual sums and RoPE of a decoder as one GPU kernel each, in forwards over blocks.

`decoder.fused` puts them in the place of transformers' own while such a forward lasts, `ops.py` has
the operators, `kernels.py` the Triton kernels, `reference.py` the same in plain torch.
"""
