"""Whole clusters as a fluid at the level of EVs: 131 072 NICs on one machine, calibrated against packets

Every queue pair has the EVs that its endpoint would have; links carry the sum of what the EVs on them bring. There are
no packets and no queues: what such a model can tell, and how far it is off, is in docs/explanation/scale-model.md.
"""
