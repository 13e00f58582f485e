"""Pictures, videos and PDFs of requests: read with limits, decoded in processes that can be killed.

`sources` gets the bytes of a URL, `decoders` makes pixels of them in a process of `processes`,
which starts, limits and kills these; `reader` is all of it and keeps pixels that are asked for
again. Importing this imports none of them.
"""
