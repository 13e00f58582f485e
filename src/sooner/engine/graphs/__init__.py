"""Steps and forwards at fixed shapes, which a GPU replays as graphs.

Each is run once as it is, then recorded, then replayed: `recorder.py`. `steps.py` has the steps of
a batch, padded to buckets of rows and entries, `drafts.py` what a draft launches.
"""
