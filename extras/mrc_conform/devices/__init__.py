"""Devices under test: our endpoint on the virtual clock, an agent, and anything behind an interface."""
