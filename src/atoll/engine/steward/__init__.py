"""Stewards: one process a sandbox, outside its wall, for every wall that is not made by the jail's zygote.

A steward starts the guest behind the wall, hands out streams to it, and ends it in time. The wall itself is one class
(`wall.Wall`), loaded by name in the steward's process; a driver of such walls is a `client.StewardDriver`.
"""
