"""The image miniature: captioned pictures and a Janus trained to draw them.

`world` and `paint` draw pictures, `codes` turns them into tokens, `classifier` judges them,
`architecture`, `words` and `build` make checkpoints, `target` reads captions and codes, `train`
trains the three parts (`learn_codes`, `learn_classifier` and `learn_target`) by a `recipe`,
`evaluate` measures and `card` tells. Importing this imports none of them: most need torch.
"""
