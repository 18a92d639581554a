"""BMv2 JSON to C: validation, layout of the PHV, and generation of parser, pipelines and deparser."""
