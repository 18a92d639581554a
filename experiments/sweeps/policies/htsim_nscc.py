"""NSCC as uet-htsim has it, where UET 1.0 leaves a choice (docs/explanation/congestion-control.md has ours).

Source: github.com/ultraethernet/uet-htsim, htsim/sim/uec.cpp: the average takes in a quarter of the base RTT for an
unmarked sample above the target; quick adapt also starts at a delay of four targets; less than 1 us is no delay.
"""

from __future__ import annotations

from mrc_host.policy import Nscc, NsccConfig


class HtsimNscc(Nscc):
    """NSCC with uet-htsim's choices."""

    def __init__(self, config: NsccConfig, mtu: int) -> None:
        super().__init__(config, mtu)
        self.qa_gate = 3
        self.qa_threshold_ns = 4 * self.target_ns
        self.near_zero_ns = 1_000
        self.marked = False

    def on_sack(
        self, now: int, newly: int, rtt_ns: int, ce: bool, penalty: int, restore: bool, whole: bool = True
    ) -> None:
        """Remember whether the packet was marked, for the average."""
        self.marked = ce
        super().on_sack(now, newly, rtt_ns, ce, penalty, restore, whole)

    def sample(self, rtt_ns: int, whole: bool = True) -> None:
        """Take a sample; what the average takes in is another one."""
        average = self.avg_qdelay
        super().sample(rtt_ns, whole)
        taken = self.qdelay_ns
        if not self.marked and taken > self.target_ns:
            taken = self.base_rtt_ns // 4
        self.avg_qdelay = average + (taken - average) * self.delay_gain
