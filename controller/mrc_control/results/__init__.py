"""What a run leaves: its records on disk and in memory."""
