"""The video miniature: a moving-shapes world and a LLaVA-OneVision pair trained on it.

`world` draws clips and scores captions, `film` makes real files of them, `architecture`, `words`
and `build` make checkpoints, `evaluate` measures. Importing this imports none of them: most need
torch.
"""
