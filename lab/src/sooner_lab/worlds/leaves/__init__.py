"""Dead leaves: textures of discs that cover each other, and a transformer trained to draw them.

`world` draws pictures and turns them into codes, `learn_leaves` and `train` train by a `recipe`;
`bench.canvas.trained` draws with the model. It confirms what `bench canvas` finds where the law is
known; weights are not kept in the repository.
"""
