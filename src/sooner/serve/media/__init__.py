"""Pictures, videos and PDFs of requests: read with limits, decoded in processes that can be killed.

`sources` gets the bytes of a URL (`fetch` those of other machines), `decoders` makes pixels of
them in a process of `worker`, which `processes` starts, limits and kills; `caches` keep pixels
that are asked for again, and `reader` is all of it.
Importing this imports none of them.
"""
