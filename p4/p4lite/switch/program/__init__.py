"""What a P4 program contains, said once: for the C that is generated from it and for its control operations."""
