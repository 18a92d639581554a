"""Fuzzing of compiled programs: random entries, packets that reach deep into a parser, sanitizers."""
