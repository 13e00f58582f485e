"""`sooner bench parse`: pages parsed plainly, by peers, and with an OCR pipeline as the drafter.

`run` is the whole; `sheets` are the pages, `arms` the contenders, `speed` times them page by page
and `figures` sums up; `exactness` compares many pages, `document` times a whole PDF (made by `pdf`)
from file to files, `clients` many pages at once; `scores`, `goals` and `page` judge and show it.
"""
