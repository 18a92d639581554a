"""The paper's figures in simulated time: each has runs of experiments, a table, a plot and a judged headline."""
