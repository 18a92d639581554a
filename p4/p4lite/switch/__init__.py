"""BMv2 JSON to C, the fabric core, and its P4Runtime server."""
