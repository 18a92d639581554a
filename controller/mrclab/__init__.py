"""Laboratory for MRC: labs, runs and their results, studies, the live view and the command line."""
