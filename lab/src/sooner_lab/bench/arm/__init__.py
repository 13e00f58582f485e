"""`sooner bench arm`: strict and relaxed acceptance where relaxing can cost successes.

`loops` acts in closed loops, `acceptance` counts rounds on recorded moments with several `drafts`;
`judging` holds both against gate and goals of `settings`, `page` shows it.
"""
