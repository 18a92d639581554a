"""A model-based campaign for both transports: a random network, a random user, an oracle that knows neither endpoint.

`scenario.py` draws what happens from a seed, `network.py` carries packets, `world.py` runs a scenario, `oracle.py` and
`judge.py` judge it by what a user and a wire can see, `shrink.py` makes a failing one small. `python -m support.model`
runs many.
"""
