"""The motion miniature's world: clips of moving shapes, which a tiny Cosmos-1 AR model continues.

`world` draws clips, `architecture` shapes the AR model, `evaluate` measures how well codes of true
clips are predicted. Importing this imports none of them: most need torch.
"""
