"""Chaos: random schedules of failures (`schedule`) done to a lab (`run`), what must stay true of it (`invariants`), and
the shortest schedule that breaks it (`shrink`)."""
