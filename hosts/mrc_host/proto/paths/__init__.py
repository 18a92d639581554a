"""Paths to a peer: EVs and their profiles, routes, probes, what is known of the peer and its ports."""
