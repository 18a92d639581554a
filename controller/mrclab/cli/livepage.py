"""The live view's page, for the verbs that have one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mrc_topo.shipped import install, requirement
from mrclab.lab.records.rundir import RunError

if TYPE_CHECKING:
    from mrclab.web.server import Page

Port = Annotated[
    int | None, typer.Option(min=0, max=65535, help="TCP port (default: 8080 or the next free one; 0: any free port)")
]
Web = Annotated[bool, typer.Option("--web", help="serve a live view for a browser and print its address")]


def check_page() -> None:
    """Check that all parts of the live view are here.

    Raises:
        RunError: one is missing; the text says which, and how to get it.
    """
    try:
        import mrclab.web.server  # noqa: F401
        from mrclab.web.assets import AssetError, need
    except ImportError as error:
        name = (error.name or "").partition(".")[0]
        text = f"the live view needs the package {name}: {install('web')}"
        raise RunError(text).needing(*requirement("web")) from error
    try:
        need()
    except AssetError as error:
        raise RunError(str(error)) from error


@contextlib.contextmanager
def page(host: str = "127.0.0.1", port: int | None = None) -> Iterator[Page]:
    """Serve a page while the context lasts, and print its address on standard output once it has something to show: a
    lab that does not come up has no address.

    Raises:
        RunError: a part of the live view is missing, or the port is taken.
    """
    check_page()
    # `mrclab up` has the option `--web`, and starts sooner without the experiments and what they import.
    from mrclab.runs.experiment import known_experiments, load_experiment
    from mrclab.web import server as web

    def announce() -> None:
        if not made.loopback:
            typer.echo(
                f"warning: {host} is reached from other machines: who sees the address below (it is not encrypted) "
                "can break this lab",
                err=True,
            )
        typer.echo(f"live view: {made.url}")  # which flushes, so that a program can read it from a pipe

    with web.Page.served(host, port, list(known_experiments()), load_experiment) as made:
        made.hub.announce = announce
        yield made
