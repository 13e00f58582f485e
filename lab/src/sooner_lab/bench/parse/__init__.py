"""`sooner bench parse`: pages parsed plainly, by peers, and with an OCR pipeline as the drafter.

`run` is the whole; `sheets` are the pages, `arms` the contenders, `figures` their rows.
"""
