"""Lab files, Clos graphs, addressing, and EV <-> path <-> uSID."""
