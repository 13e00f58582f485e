"""The motion miniature: a tiny Cosmos-1 AR model that continues clips of moving shapes.

`world` draws clips, `film` makes real files of them, `tokenizer` turns them into codes and back,
`architecture` shapes the AR model, `probe` names what is in a frame, `train` trains the three
parts by a `recipe`, `evaluate` measures and `card` tells. Importing this imports none of them:
most need torch.
"""
