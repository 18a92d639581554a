"""Which paths are dead, and which are denied."""
