"""`sooner bench imagine`: how coupled Jacobi decoding draws, against what it must equal and beat.

`run` is the whole; `speed` times the arms behind a parity gate, `quality` holds what they draw
against plain decoding, `breakdown` says where a step's time goes, `study` collects what the
paper's figures show, `plots` and `story` draw them, `page` makes the tables.
"""
