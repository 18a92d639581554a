"""Which paths are dead, and which nobody may take."""
