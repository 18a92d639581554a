"""Charts of all pages, and their looks on paper.

Frame and style sheet of a page are in `mrc_topo.base.look`, quantities with their units in `mrc_topo.units`: the
conformance kit and the topology need them without this package.
"""
