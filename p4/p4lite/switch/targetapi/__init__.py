"""The target API, for what P4Runtime has no words for: its service, its client, and their messages."""
