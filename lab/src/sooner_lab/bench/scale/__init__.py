"""`sooner bench scale`: one worker and two, with Ray and without, and what was predicted of them.

`run` is the whole; `command` runs `sooner parse` on its cores and looks at its processes, `figures`
makes pages a second of runs of two lengths, `predicted` holds the simulated cluster against them,
`goals` and `page` judge and show it.
"""
