"""What a run will take before it starts: its traffic, CPU time and memory, from the costs of a machine."""
