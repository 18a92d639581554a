"""Who may send how much: one controller per destination (MRC) or per queue pair (RoCE)."""
