"""Drivers of the MRC endpoint: raw sockets and virtual time."""
