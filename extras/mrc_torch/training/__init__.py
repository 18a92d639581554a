"""PyTorch jobs in a lab: a rank in each host, failures meanwhile, restarts from checkpoints, and a report."""
