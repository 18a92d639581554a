"""Adapters: what asks a device under test to connect and to post, by lines of text that any program can read."""
