"""Management of paths: those that are dead, and those that are denied."""
