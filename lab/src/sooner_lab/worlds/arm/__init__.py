"""A robot whose acceptance can fail: actions of seven dimensions in three tasks of robosuite.

`simulator` steps the tasks, `experts` do them, `gauges` draws the state as the policy sees it,
`collect` records noisy demonstrations; `learn_arm` and `train` train policy and draft heads by a
`recipe`. `bench arm` judges with them; weights are not kept in the repository.
"""
