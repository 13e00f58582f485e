"""The study behind `sooner bench parallel`: ParallelVLM's tables from real runs.

`settings` what is measured · `contenders` the arms · `running` one arm on one clip · `book` the
runs so far, on disk · `summary` figures from runs · `page` how it is shown · `study` the whole.
"""
