"""The paper's figures, run anew in simulated time: each a few runs of experiments, a table, a plot and a judged headline."""
