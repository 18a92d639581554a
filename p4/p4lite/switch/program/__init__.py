"""Contents of a P4 program, said once: for the C that is generated from it and for its control operations."""
