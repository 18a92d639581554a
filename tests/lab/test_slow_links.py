"""A lab whose queues hold longer than the ACK timeout: slow, but honest queue pairs live and get their share."""

from __future__ import annotations

import pathlib

from mrclab.results.recording import Recording
from mrclab.runs.runner import WorkloadRun
from mrclab.runs.workload import WorkloadSpec
from support.lab.labs import lab_file, session


def test_an_incast_through_queues_longer_than_the_ack_timeout(tmp_path: pathlib.Path) -> None:
    """Half a second of queue, 134 ms of timeout. Probes filled the links; one of their answers, taken for that of
    another, ended a queue pair; in the next run between the same hosts the retries ran out."""
    lab = lab_file(tmp_path, "tiny", links={"host": {"rate": "1Mbps"}}, reliability={"timeout": 17})
    spec = WorkloadSpec("incast", {"message_bytes": 100_000}, ["h3", "h0", "h2", "h1"], 5.0)
    with session(lab, "virtual") as each:
        for _ in range(2):
            with Recording() as recording:
                result = WorkloadRun(each, spec, [], None, recording).go()
            assert [rank.failure for rank in result.progress.values()] == [""] * 4
            # 1.5 MB would pass in the time; a third of it is enough to tell trickling from starving.
            assert sum(rank.bytes_verified for rank in result.progress.values()) > 400_000
