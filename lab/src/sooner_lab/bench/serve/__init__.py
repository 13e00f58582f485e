"""`sooner bench serve`: real servers under load from another process, arm beside arm.

Closed loops over loopback; HF's own batching in this process; answers compared
token by token. Nothing is imported here: the load generator's process needs no torch.
"""
