"""The switches of a lab: backends, the P4Runtime client, and the program and entries that they run."""
