"""Names the culprits of a run that makes no progress: who waits for what, and since when.

Every rank tells what its queue pairs and its workload wait for (`mrc_host.node.jobs.Job.waiting`). Ranks wait for each
other; the culprits are the queue pairs with unfinished requests, and where there is none, the ranks at the end of the
chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mrc_host.answers import JobWaiting, QpWaiting

#: Nothing moved for so long, and for as long as queue pairs retry a packet, is not a progress.
STILL_S = 5.0
#: A queue pair that retries for ever does so after this time at the latest.
LONGEST_TIMEOUT_S = (1024 << 24) / 1e9
NAMED = 3


def bound_s(documents: Mapping[str, JobWaiting]) -> float:
    """Return after how many seconds without movement no further progress can be expected."""
    patience = 0.0
    for document in documents.values():
        for row in document.qps:
            given = row.patience_ns
            patience = max(patience, LONGEST_TIMEOUT_S if given is None else given / 1e9)
    return STILL_S + patience


def culprits(documents: Mapping[str, JobWaiting], gone: Iterable[str] = ()) -> list[str]:
    """Return a line for each, the one that waits longest first.

    Args:
        documents: what each rank waits for, by host.
        gone: hosts that do not answer any more.
    """
    rows = [(name, row) for name, document in documents.items() for row in document.qps]
    if rows:
        rows.sort(key=lambda each: -each[1].for_ns)
        return [_queue_pair(name, row) for name, row in rows]
    lost = set(gone)
    lines = []
    for name, document in documents.items():
        if not document.done:
            for other in document.awaits:
                found = _end_of_chain(name, document, other, documents, lost)
                if found is not None:
                    lines.append(found)
    if lines:
        return lines
    waiting = [(name, document) for name, document in documents.items() if not document.done]
    waiting.sort(key=lambda each: not each[1].puts)
    return [f"{name} waits for {_what(document)}" for name, document in waiting]


def _what(document: JobWaiting) -> str:
    if document.puts:
        return f"{document.puts} of its own writes to end, of which no queue pair knows"
    names = ", ".join(document.awaits)
    return f"{document.what} of {names}" if names else document.what


def _queue_pair(name: str, row: QpWaiting) -> str:
    times = f", sent {row.sent} times" if row.sent > 1 else ""
    return f"{name} QP {row.qpn} to {row.peer} waits for {row.what} since {row.for_ns / 1e9:.1f} s{times}"


def _end_of_chain(
    name: str, document: JobWaiting, other: str, documents: Mapping[str, JobWaiting], lost: set[str]
) -> str | None:
    """Return a rank that waits for one that will send nothing more; None if that one waits in its turn."""
    begin = f"{name} waits for {document.what} of {other}, "
    if other in lost:
        return f"{begin}which is gone"
    if other not in documents:
        return f"{begin}which does not answer"
    there = documents[other]
    if there.failure:
        return f"{begin}which ended by: {there.failure}"
    if there.done:
        return f"{begin}which has ended"
    if not there.awaits and not there.puts:
        return f"{begin}which waits for {there.what} and for no other rank"
    return None


def text(documents: Mapping[str, JobWaiting], gone: Iterable[str] = (), broken: Iterable[str] = ()) -> str:
    """Return the first culprits in one line, and what is broken in the lab."""
    lines = culprits(documents, gone)
    more = [f"and {len(lines) - NAMED} more"] if len(lines) > NAMED else []
    harm = [f"broken: {', '.join(sorted(broken))}"] if broken else []
    return "; ".join([*(lines[:NAMED] or ["no rank waits for anything"]), *more, *harm])
