"""The command `mrclab`: `app` puts its verbs together, and each verb has a module."""
