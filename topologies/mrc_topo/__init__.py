"""Lab files, Clos graphs, addressing, and EV <-> path <-> uSID.

    from mrc_topo.labfile import load_lab
    from mrc_topo.paths import Paths

    topology = load_lab("default")          # LabError: lines for the user
    paths = Paths(topology)

Rules and examples: docs/topology.md. `mrc_topo.base` has documents, messages, files and errors of all packages.
"""
