"""Jobs: functions that turn one input file or prompt into one record; no global state.

`identity` finds inputs and keeps records on disk, `video` decodes files, `frames` picks frames as
the model's processor does, `prompting` makes model inputs, `loading` gets models, `caption` is a
job. Importing this imports none of them: most need torch.
"""
