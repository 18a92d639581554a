"""Workloads over the kernel's own TCP: a rank in a process, in its host's network namespace.

Nothing of TCP is ours. `channel` carries a workload's writes over sockets; `__main__` is the program.
"""
