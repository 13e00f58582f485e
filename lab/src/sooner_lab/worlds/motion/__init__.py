"""The motion miniature's world: clips of moving shapes, which a tiny Cosmos-1 AR model continues.

`world` draws clips, `architecture` shapes the AR model. Importing this imports neither.
"""
