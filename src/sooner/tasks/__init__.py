"""Jobs: functions that turn one input file or prompt into one record; no global state.

`identity` finds inputs, `video` decodes them, `frames` picks frames as the model's processor does,
`prompting` makes model inputs, `loading` gets models, `caption` and `comparison` are the jobs,
`records` keeps what is done on disk. Importing this imports none of them: most need torch.
"""
