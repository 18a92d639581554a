"""The lab as a thing on a machine: its namespaces and the program that starts it in them."""
