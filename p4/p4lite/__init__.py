"""P4_16 compiler and embedded v1model switch."""
