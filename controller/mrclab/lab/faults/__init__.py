"""Failures: what can be done to a lab (`kinds`), what that means (`effects`), and what is in force (`ledger`)."""
