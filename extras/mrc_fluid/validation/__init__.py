"""A fixed suite of scenarios, run packet by packet, as a fluid, and by uet-htsim where the user has it."""
