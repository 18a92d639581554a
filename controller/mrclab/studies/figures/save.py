"""A plot as SVG, PNG and PGF (for LaTeX), the same bytes for the same numbers and the same matplotlib."""

from __future__ import annotations

import contextlib
import io
import pathlib
from collections.abc import Iterator
from typing import Any

from mrc_topo.base.files import write_whole

#: What all plots have: text in SVG as shapes, so that it looks the same everywhere, and ids that repeat.
STYLE = {
    "svg.hashsalt": "mrclab",
    "svg.fonttype": "path",
    "font.size": 9,
    "axes.axisbelow": True,
    "hatch.linewidth": 0.6,
}
#: In PGF text is set by the document's own fonts.
PGF = {"pgf.rcfonts": False, "pgf.texsystem": "pdflatex"}
#: By format, what is written into the file beside the plot: no time, no version.
FORMATS: dict[str, dict[str, str | None]] = {"svg": {"Date": None, "Creator": "mrclab"}, "png": {"Software": None}}


@contextlib.contextmanager
def _without_tex() -> Iterator[None]:
    """Measure texts for PGF with matplotlib's own fonts, where the backend would start TeX, which few machines have.

    The sizes only decide where lines of a text break apart; the document's TeX aligns each line by itself.
    """
    from matplotlib.backends.backend_agg import RendererAgg
    from matplotlib.backends.backend_pgf import RendererPgf

    measured = RendererAgg(1, 1, 72)

    def size(self: Any, text: str, prop: Any, ismath: Any) -> Any:
        return measured.get_text_width_height_descent(text, prop, ismath)

    tex = RendererPgf.get_text_width_height_descent
    RendererPgf.get_text_width_height_descent = size
    try:
        yield
    finally:
        RendererPgf.get_text_width_height_descent = tex


def _for_tex(text: str) -> str:
    """Return PGF with underscores that TeX prints: they are in texts alone, and the backend leaves them as they are."""
    lines = text.split("\n")
    return "\n".join(line if line.startswith("%") else line.replace("_", "\\_") for line in lines)


def save(drawn: Any, folder: pathlib.Path, name: str) -> list[str]:
    """Write a plot as NAME.svg, NAME.png and NAME.pgf, and close it; return the files' names.

    Raises:
        WriteError: one could not be written.
    """
    import matplotlib
    from matplotlib import pyplot

    made = []
    with matplotlib.rc_context(STYLE):
        for kind, metadata in FORMATS.items():
            sink = io.BytesIO()
            drawn.savefig(sink, format=kind, dpi=150, metadata=metadata)
            write_whole(folder / f"{name}.{kind}", sink.getvalue())
            made.append(f"{name}.{kind}")
    drawn.set_layout_engine("none")  # the layout of the other formats stays
    with matplotlib.rc_context({**STYLE, **PGF}), _without_tex():
        text = io.StringIO()
        drawn.savefig(text, format="pgf")
        write_whole(folder / f"{name}.pgf", _for_tex(text.getvalue()))
        made.append(f"{name}.pgf")
    pyplot.close(drawn)
    return made
