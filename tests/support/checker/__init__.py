"""A model checker over the sans-IO core: two endpoints, one queue pair, every order of events up to a bound.

`scenario.py` says what is explored, `state.py` saves, restores and compares the state of an endpoint, `ends.py` drives
the two endpoints, `packets.py` names packets and takes the clock out of them, `world.py` has the events and what each
leads to, `invariants.py` what must hold, `search.py` the exploration, `replay.py` counterexamples and `planted.py`
bugs of the past. `python -m support.checker` runs it; docs/explanation/model-checker.md explains it.
"""
