"""Draws a figure of `mrclab figures` again from its table: python docs/redraw.py results/figures/9a.csv 9a-mine.png."""

import sys

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot

table, picture = sys.argv[1:3]
try:
    import pandas

    curves = [(name, rows) for name, rows in pandas.read_csv(table).groupby("series", sort=False)]
except ImportError:
    import polars

    curves = [(name, rows) for (name,), rows in polars.read_csv(table).group_by(["series"], maintain_order=True)]
for name, rows in curves:
    pyplot.plot(rows["x"].to_numpy(), rows["y"].to_numpy(), label=name)
pyplot.xlabel(rows["x_is"].to_numpy()[0])
pyplot.ylabel(rows["y_is"].to_numpy()[0])
pyplot.legend()
pyplot.savefig(picture)
