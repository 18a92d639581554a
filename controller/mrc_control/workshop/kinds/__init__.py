"""The kinds of checks: each a function of what runs recorded, registered by name, with typed parameters"""

from mrc_control.workshop.kinds import counters, load, loss, policies, prediction, queues, usid, verdicts

MODULES = (counters, load, loss, policies, prediction, queues, usid, verdicts)
