"""Processes of a lab: start them in namespaces, find them again, and learn how they died."""
