"""The world of marks: long clips in which four of a frame's 64 tokens carry something.

`world` draws clips and knows their exact answers, `draw` renders them, `architecture` makes real
checkpoints, `data` packs eight questions and a caption behind one clip, `train` trains by a
`recipe`. Target and draft are trained apart and neither on pruned prompts, so that a benchmark may
ask which visual tokens a draft needs. Importing this imports none of them: most need torch.
"""
