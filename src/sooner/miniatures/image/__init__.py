"""The image miniature: captioned pictures and a Janus trained to draw them.

`world` and `paint` draw pictures, `codes` turns them into tokens, `classifier` judges them,
`architecture`, `words` and `build` make checkpoints, `recipe` trains (`loop` runs the parts
`codes`, `judge` and `target`), `evaluate` and `card` measure. Importing this imports none of
them: most need torch.
"""
