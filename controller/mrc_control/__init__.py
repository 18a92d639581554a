"""Lab lifecycle, P4Runtime rules, failures, Clustermapper and the mrclab CLI."""
