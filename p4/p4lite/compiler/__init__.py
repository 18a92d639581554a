"""P4_16 (v1model) to BMv2 JSON and P4Info."""
