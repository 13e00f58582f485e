"""Pictures, videos and PDFs of requests: read with limits, decoded in processes that can be killed.

`sources` gets the bytes of a URL (`fetch` those of other machines), `decoders` makes pixels of
them in a process of `worker`, which `processes` starts, limits and kills; `reader` is all of it
and keeps pixels that are asked for again.
Importing this imports none of them.
"""
