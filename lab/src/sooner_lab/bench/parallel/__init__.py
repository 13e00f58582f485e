"""The study behind `sooner bench parallel`: ParallelVLM's tables and figures from real runs.

`settings` what is measured · `contenders` the arms · `running` one arm on one clip · `book` the
runs so far, on disk · `summary` figures from runs · `watch` and `timeline` both sides of one run ·
`peak` memory · `page` and `plots` how it is shown · `study` the whole.
"""
