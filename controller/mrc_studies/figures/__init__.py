"""The paper's figures, run anew in simulated time: runs of experiments, a table, a plot and a judged headline each."""
