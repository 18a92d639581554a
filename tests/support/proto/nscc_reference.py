"""NSCC a second time: the pseudocode of UET 1.0, 3.6.13.4 to 3.6.13.6, written out line by line and slowly.

An oracle for `mrc_host.proto.congestion.nscc`: state and functions have the names of the specification, nothing is
merged or rearranged. What the specification leaves to implementations is marked OPEN and is what `mrc-protocol.md
§8` says.
"""

from __future__ import annotations

from dataclasses import dataclass

INVALID_RTT = 0


@dataclass
class Parameters:
    """Table 3-76. Bytes, nanoseconds, bytes per nanosecond."""

    mtu: int
    linkspeed: float
    config_base_rtt: int
    target_qdelay: int
    alpha: float
    fi: float
    fi_scale: float
    eta: float
    gamma: float
    max_md_jump: float
    qa_gate: int
    qa_threshold: int
    adjust_bytes_threshold: int
    adjust_period_threshold: int
    disable_quick_adapt: bool
    delay_gain: float  # OPEN: how the average delay is taken
    near_zero: int  # OPEN: what "delay ~= 0" is

    @staticmethod
    def default(mtu: int, bits_per_second: float, config_base_rtt: int, trimming: bool) -> Parameters:
        linkspeed = bits_per_second / 8e9
        scaling_a = linkspeed * config_base_rtt / (100e9 / 8e9 * 12_000)
        target = int(config_base_rtt * 0.75) if trimming else config_base_rtt
        scaling_b = target / 12_000
        return Parameters(
            mtu=mtu,
            linkspeed=linkspeed,
            config_base_rtt=config_base_rtt,
            target_qdelay=target,
            alpha=4.0 * scaling_a * scaling_b * mtu / target,
            fi=5.0 * mtu * scaling_a,
            fi_scale=0.25 * scaling_a,
            eta=0.15 * mtu * scaling_a,
            gamma=0.8,
            max_md_jump=0.5,
            qa_gate=3,
            qa_threshold=10**15 if trimming else 4 * target,
            adjust_bytes_threshold=8 * mtu,
            adjust_period_threshold=config_base_rtt,
            disable_quick_adapt=False,
            delay_gain=0.0125,
            near_zero=max(1_000, target // 16),
        )


class Reference:
    """Table 3-77 and the functions that change it. `now` is handed in."""

    def __init__(self, parameters: Parameters) -> None:
        self.p = parameters
        self.max_wnd = 1.5 * parameters.linkspeed * parameters.config_base_rtt
        self.cwnd = self.max_wnd
        self.inflight = 0
        self.saved_cwnd = 0.0
        self.base_rtt = parameters.config_base_rtt
        self.achieved_bytes = 0
        self.received_bytes = 0
        self.fi_count = 0
        self.trigger_qa = False
        self.qa_endtime = 0
        self.bytes_to_ignore = 0
        self.bytes_ignored = 0
        self.inc_bytes = 0.0
        self.last_adjust_time = 0
        self.increase = False
        self.last_dec_time = 0
        self.avg_delay = 0.0

    # --- events ---

    def on_ack(self, now: int, newly_rcvd: int, m_flag: bool, rtt_sample: int, pend: int, restore: bool) -> None:
        self.inflight -= newly_rcvd
        self.bytes_ignored += newly_rcvd
        self.received_bytes += newly_rcvd
        self.achieved_bytes += newly_rcvd
        rcv_limit_mode = self.apply_cwnd_penalty(pend, restore, newly_rcvd)
        if rtt_sample == INVALID_RTT:
            return
        self.update_base_rtt(rtt_sample)
        delay = rtt_sample - self.base_rtt
        self.update_delay(delay)
        if self.quick_adapt(now, False, m_flag, delay):
            return
        if not m_flag and delay >= self.p.target_qdelay and not rcv_limit_mode:
            self.fair_increase(newly_rcvd)
        elif not m_flag and delay < self.p.target_qdelay and not rcv_limit_mode:
            self.proportional_increase(newly_rcvd, delay)
        elif m_flag and delay >= self.p.target_qdelay:
            self.multiplicative_decrease(now)
        if (
            now - self.last_adjust_time >= self.p.adjust_period_threshold
            or self.received_bytes > self.p.adjust_bytes_threshold
        ):
            self.fulfill_adjustment(now)

    def on_inferred_loss(self, size: int) -> None:
        self.cwnd = max(self.cwnd - size, self.p.mtu)
        self.bytes_ignored += size
        self.inflight -= size

    def on_trimmed(self, now: int, size: int) -> None:
        """OnNACK with reason TRIMMED or TRIMMED_LASTHOP, without receiver credits. OPEN: takes no RTT sample."""
        self.inflight -= size
        self.update_delay(self.p.config_base_rtt)
        self.bytes_ignored += size
        self.trigger_qa = True
        if self.quick_adapt(now, True, True, 0):
            return
        self.cwnd = max(self.cwnd - size, self.p.mtu)

    def on_other_nack(self, size: int) -> None:
        self.inflight -= size

    def on_send(self, size: int) -> None:
        self.inflight += size

    # --- what they do ---

    def fulfill_adjustment(self, now: int) -> None:
        self.cwnd += self.inc_bytes / self.cwnd
        if now - self.last_adjust_time >= self.p.adjust_period_threshold:
            self.last_adjust_time = now
            self.cwnd += self.p.eta
        if self.cwnd > self.max_wnd:
            self.cwnd = self.max_wnd
        self.inc_bytes = 0.0
        self.received_bytes = 0

    def fair_increase(self, newly_rcvd: int) -> None:
        self.inc_bytes += self.p.fi * newly_rcvd

    def proportional_increase(self, newly_rcvd: int, delay: int) -> None:
        self.fast_increase(newly_rcvd, delay)
        if self.increase:
            return
        self.inc_bytes += self.p.alpha * newly_rcvd * (self.p.target_qdelay - delay)

    def fast_increase(self, newly_rcvd: int, delay: int) -> None:
        if delay < self.p.near_zero:
            self.fi_count += newly_rcvd
            if self.fi_count > self.cwnd or self.increase:
                self.cwnd += newly_rcvd * self.p.fi_scale
                if self.cwnd > self.max_wnd:
                    self.cwnd = self.max_wnd
                self.increase = True
                return
        else:
            self.fi_count = 0
        self.increase = False

    def multiplicative_decrease(self, now: int) -> None:
        self.increase = False
        self.fi_count = 0
        avg = self.avg_delay
        if avg > self.p.target_qdelay and now - self.last_dec_time > self.base_rtt:
            self.cwnd *= max(1 - self.p.gamma * (avg - self.p.target_qdelay) / avg, self.p.max_md_jump)
            self.cwnd = max(self.cwnd, self.p.mtu)
            self.last_dec_time = now

    def quick_adapt(self, now: int, is_loss: bool, m_flag: bool, qdelay: int) -> bool:
        if self.p.disable_quick_adapt:
            return False
        done_or_ignore = False
        if self.bytes_ignored < self.bytes_to_ignore and m_flag:
            done_or_ignore = True
        elif now >= self.qa_endtime:
            # OPEN: not said what an interval means in which nothing could come back.
            silent = now >= self.qa_endtime + self.base_rtt + self.p.target_qdelay
            if (
                self.qa_endtime != 0
                and not silent
                and (self.trigger_qa or is_loss or qdelay > self.p.qa_threshold)
                and self.achieved_bytes < int(self.max_wnd) >> self.p.qa_gate
            ):
                self.cwnd = max(self.achieved_bytes, self.p.mtu)
                self.bytes_to_ignore = self.inflight
                self.bytes_ignored = 0
                self.trigger_qa = False
                done_or_ignore = True
            self.achieved_bytes = 0
            self.qa_endtime = now + self.base_rtt + self.p.target_qdelay
        if done_or_ignore:
            self.inc_bytes = 0.0
            self.received_bytes = 0
        return done_or_ignore

    def apply_cwnd_penalty(self, pend: int, restore: bool, newly_rcvd: int) -> bool:
        if pend > 0:
            if self.saved_cwnd == 0:
                self.saved_cwnd = self.cwnd
            window_decrease = pend * newly_rcvd >> 7
            self.cwnd = min(self.cwnd, self.inflight)
            self.cwnd = max(self.p.mtu, self.cwnd - window_decrease)
        elif restore and self.saved_cwnd > 0:
            self.cwnd = self.saved_cwnd
            self.saved_cwnd = 0
        return pend > 0

    def update_base_rtt(self, raw_rtt: int) -> None:
        if self.base_rtt > raw_rtt:
            self.base_rtt = raw_rtt
            self.max_wnd = max(1.5 * self.p.linkspeed * raw_rtt, self.p.mtu)

    def update_delay(self, delay: int) -> None:
        self.avg_delay += (delay - self.avg_delay) * self.p.delay_gain
