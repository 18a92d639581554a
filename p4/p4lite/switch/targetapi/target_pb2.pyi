from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SwitchState(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    SWITCH_STATE_UNSPECIFIED: _ClassVar[SwitchState]
    SWITCH_STATE_RUNNING: _ClassVar[SwitchState]
    SWITCH_STATE_FROZEN: _ClassVar[SwitchState]
    SWITCH_STATE_STOPPED: _ClassVar[SwitchState]

class PortDirection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    PORT_DIRECTION_BOTH: _ClassVar[PortDirection]
    PORT_DIRECTION_OUTGOING: _ClassVar[PortDirection]
    PORT_DIRECTION_INCOMING: _ClassVar[PortDirection]

class LinkDirection(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LINK_DIRECTION_BOTH: _ClassVar[LinkDirection]
    LINK_DIRECTION_A_TO_B: _ClassVar[LinkDirection]
    LINK_DIRECTION_B_TO_A: _ClassVar[LinkDirection]
SWITCH_STATE_UNSPECIFIED: SwitchState
SWITCH_STATE_RUNNING: SwitchState
SWITCH_STATE_FROZEN: SwitchState
SWITCH_STATE_STOPPED: SwitchState
PORT_DIRECTION_BOTH: PortDirection
PORT_DIRECTION_OUTGOING: PortDirection
PORT_DIRECTION_INCOMING: PortDirection
LINK_DIRECTION_BOTH: LinkDirection
LINK_DIRECTION_A_TO_B: LinkDirection
LINK_DIRECTION_B_TO_A: LinkDirection

class End(_message.Message):
    __slots__ = ("device_id", "port")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    port: int
    def __init__(self, device_id: _Optional[int] = ..., port: _Optional[int] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BurstLoss(_message.Message):
    __slots__ = ("to_bad", "to_good", "loss_bad", "loss_good")
    TO_BAD_FIELD_NUMBER: _ClassVar[int]
    TO_GOOD_FIELD_NUMBER: _ClassVar[int]
    LOSS_BAD_FIELD_NUMBER: _ClassVar[int]
    LOSS_GOOD_FIELD_NUMBER: _ClassVar[int]
    to_bad: float
    to_good: float
    loss_bad: float
    loss_good: float
    def __init__(self, to_bad: _Optional[float] = ..., to_good: _Optional[float] = ..., loss_bad: _Optional[float] = ..., loss_good: _Optional[float] = ...) -> None: ...

class LinkSettings(_message.Message):
    __slots__ = ("rate_bps", "delay_ns", "overhead_bytes", "loss", "burst_loss", "corrupt", "duplicate", "reorder", "reorder_extra_ns", "blackhole", "host_queue_bytes", "pause_storm_mac")
    RATE_BPS_FIELD_NUMBER: _ClassVar[int]
    DELAY_NS_FIELD_NUMBER: _ClassVar[int]
    OVERHEAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    BURST_LOSS_FIELD_NUMBER: _ClassVar[int]
    CORRUPT_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    REORDER_FIELD_NUMBER: _ClassVar[int]
    REORDER_EXTRA_NS_FIELD_NUMBER: _ClassVar[int]
    BLACKHOLE_FIELD_NUMBER: _ClassVar[int]
    HOST_QUEUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAUSE_STORM_MAC_FIELD_NUMBER: _ClassVar[int]
    rate_bps: int
    delay_ns: int
    overhead_bytes: int
    loss: float
    burst_loss: BurstLoss
    corrupt: float
    duplicate: float
    reorder: float
    reorder_extra_ns: int
    blackhole: bool
    host_queue_bytes: int
    pause_storm_mac: int
    def __init__(self, rate_bps: _Optional[int] = ..., delay_ns: _Optional[int] = ..., overhead_bytes: _Optional[int] = ..., loss: _Optional[float] = ..., burst_loss: _Optional[_Union[BurstLoss, _Mapping]] = ..., corrupt: _Optional[float] = ..., duplicate: _Optional[float] = ..., reorder: _Optional[float] = ..., reorder_extra_ns: _Optional[int] = ..., blackhole: _Optional[bool] = ..., host_queue_bytes: _Optional[int] = ..., pause_storm_mac: _Optional[int] = ...) -> None: ...

class QueueLimits(_message.Message):
    __slots__ = ("packets", "bytes")
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    packets: int
    bytes: int
    def __init__(self, packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class PfcSettings(_message.Message):
    __slots__ = ("xoff_bytes", "xon_bytes", "headroom_bytes", "quanta", "detection_ns", "restoration_ns")
    XOFF_BYTES_FIELD_NUMBER: _ClassVar[int]
    XON_BYTES_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_BYTES_FIELD_NUMBER: _ClassVar[int]
    QUANTA_FIELD_NUMBER: _ClassVar[int]
    DETECTION_NS_FIELD_NUMBER: _ClassVar[int]
    RESTORATION_NS_FIELD_NUMBER: _ClassVar[int]
    xoff_bytes: int
    xon_bytes: int
    headroom_bytes: int
    quanta: int
    detection_ns: int
    restoration_ns: int
    def __init__(self, xoff_bytes: _Optional[int] = ..., xon_bytes: _Optional[int] = ..., headroom_bytes: _Optional[int] = ..., quanta: _Optional[int] = ..., detection_ns: _Optional[int] = ..., restoration_ns: _Optional[int] = ...) -> None: ...

class CreditSettings(_message.Message):
    __slots__ = ("buffer_bytes", "dscps")
    BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    DSCPS_FIELD_NUMBER: _ClassVar[int]
    buffer_bytes: int
    dscps: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, buffer_bytes: _Optional[int] = ..., dscps: _Optional[_Iterable[int]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FabricInfo(_message.Message):
    __slots__ = ("now_ns", "events", "notifications_lost", "switches")
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    NOTIFICATIONS_LOST_FIELD_NUMBER: _ClassVar[int]
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    now_ns: int
    events: int
    notifications_lost: int
    switches: _containers.RepeatedCompositeFieldContainer[SwitchInfo]
    def __init__(self, now_ns: _Optional[int] = ..., events: _Optional[int] = ..., notifications_lost: _Optional[int] = ..., switches: _Optional[_Iterable[_Union[SwitchInfo, _Mapping]]] = ...) -> None: ...

class SwitchInfo(_message.Message):
    __slots__ = ("device_id", "name", "state", "program", "cpu_port", "drop_port", "priority_queues", "stream_drops", "ports")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PROGRAM_FIELD_NUMBER: _ClassVar[int]
    CPU_PORT_FIELD_NUMBER: _ClassVar[int]
    DROP_PORT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    STREAM_DROPS_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    name: str
    state: SwitchState
    program: str
    cpu_port: int
    drop_port: int
    priority_queues: int
    stream_drops: int
    ports: _containers.RepeatedCompositeFieldContainer[PortInfo]
    def __init__(self, device_id: _Optional[int] = ..., name: _Optional[str] = ..., state: _Optional[_Union[SwitchState, str]] = ..., program: _Optional[str] = ..., cpu_port: _Optional[int] = ..., drop_port: _Optional[int] = ..., priority_queues: _Optional[int] = ..., stream_drops: _Optional[int] = ..., ports: _Optional[_Iterable[_Union[PortInfo, _Mapping]]] = ...) -> None: ...

class PortInfo(_message.Message):
    __slots__ = ("port", "name", "interface", "peer", "up_outgoing", "up_incoming", "outgoing", "incoming")
    PORT_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    UP_OUTGOING_FIELD_NUMBER: _ClassVar[int]
    UP_INCOMING_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    port: int
    name: str
    interface: str
    peer: End
    up_outgoing: bool
    up_incoming: bool
    outgoing: LinkSettings
    incoming: LinkSettings
    def __init__(self, port: _Optional[int] = ..., name: _Optional[str] = ..., interface: _Optional[str] = ..., peer: _Optional[_Union[End, _Mapping]] = ..., up_outgoing: _Optional[bool] = ..., up_incoming: _Optional[bool] = ..., outgoing: _Optional[_Union[LinkSettings, _Mapping]] = ..., incoming: _Optional[_Union[LinkSettings, _Mapping]] = ...) -> None: ...

class StatsRequest(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: DeviceIds
    def __init__(self, switches: _Optional[_Union[DeviceIds, _Mapping]] = ...) -> None: ...

class DeviceIds(_message.Message):
    __slots__ = ("device_ids",)
    DEVICE_IDS_FIELD_NUMBER: _ClassVar[int]
    device_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, device_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StatsResponse(_message.Message):
    __slots__ = ("switches",)
    SWITCHES_FIELD_NUMBER: _ClassVar[int]
    switches: _containers.RepeatedCompositeFieldContainer[DeviceStats]
    def __init__(self, switches: _Optional[_Iterable[_Union[DeviceStats, _Mapping]]] = ...) -> None: ...

class DeviceStats(_message.Message):
    __slots__ = ("device_id", "now_ns", "switch", "ports")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    SWITCH_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    now_ns: int
    switch: SwitchStats
    ports: _containers.RepeatedCompositeFieldContainer[PortStats]
    def __init__(self, device_id: _Optional[int] = ..., now_ns: _Optional[int] = ..., switch: _Optional[_Union[SwitchStats, _Mapping]] = ..., ports: _Optional[_Iterable[_Union[PortStats, _Mapping]]] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("names", "counts")
    NAMES_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    names: str
    counts: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, names: _Optional[str] = ..., counts: _Optional[_Iterable[int]] = ...) -> None: ...

class SwitchStats(_message.Message):
    __slots__ = ("received", "ingress", "egress", "transmitted", "drops", "ingress_clones", "egress_clones", "resubmits", "recirculations", "replicas", "digests", "parser_errors", "absorbed", "copies_missed", "other_queued", "other_drops")
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    INGRESS_FIELD_NUMBER: _ClassVar[int]
    EGRESS_FIELD_NUMBER: _ClassVar[int]
    TRANSMITTED_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    INGRESS_CLONES_FIELD_NUMBER: _ClassVar[int]
    EGRESS_CLONES_FIELD_NUMBER: _ClassVar[int]
    RESUBMITS_FIELD_NUMBER: _ClassVar[int]
    RECIRCULATIONS_FIELD_NUMBER: _ClassVar[int]
    REPLICAS_FIELD_NUMBER: _ClassVar[int]
    DIGESTS_FIELD_NUMBER: _ClassVar[int]
    PARSER_ERRORS_FIELD_NUMBER: _ClassVar[int]
    ABSORBED_FIELD_NUMBER: _ClassVar[int]
    COPIES_MISSED_FIELD_NUMBER: _ClassVar[int]
    OTHER_QUEUED_FIELD_NUMBER: _ClassVar[int]
    OTHER_DROPS_FIELD_NUMBER: _ClassVar[int]
    received: int
    ingress: int
    egress: int
    transmitted: int
    drops: Counts
    ingress_clones: int
    egress_clones: int
    resubmits: int
    recirculations: int
    replicas: int
    digests: int
    parser_errors: int
    absorbed: int
    copies_missed: int
    other_queued: int
    other_drops: Counts
    def __init__(self, received: _Optional[int] = ..., ingress: _Optional[int] = ..., egress: _Optional[int] = ..., transmitted: _Optional[int] = ..., drops: _Optional[_Union[Counts, _Mapping]] = ..., ingress_clones: _Optional[int] = ..., egress_clones: _Optional[int] = ..., resubmits: _Optional[int] = ..., recirculations: _Optional[int] = ..., replicas: _Optional[int] = ..., digests: _Optional[int] = ..., parser_errors: _Optional[int] = ..., absorbed: _Optional[int] = ..., copies_missed: _Optional[int] = ..., other_queued: _Optional[int] = ..., other_drops: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class PortStats(_message.Message):
    __slots__ = ("port", "rx_packets", "rx_bytes", "tx_packets", "tx_bytes", "drops", "corrupted", "duplicated", "reordered", "queues", "service_lag", "storm_frames", "pfc", "credits", "tunnel", "on_wire")
    PORT_FIELD_NUMBER: _ClassVar[int]
    RX_PACKETS_FIELD_NUMBER: _ClassVar[int]
    RX_BYTES_FIELD_NUMBER: _ClassVar[int]
    TX_PACKETS_FIELD_NUMBER: _ClassVar[int]
    TX_BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPS_FIELD_NUMBER: _ClassVar[int]
    CORRUPTED_FIELD_NUMBER: _ClassVar[int]
    DUPLICATED_FIELD_NUMBER: _ClassVar[int]
    REORDERED_FIELD_NUMBER: _ClassVar[int]
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    SERVICE_LAG_FIELD_NUMBER: _ClassVar[int]
    STORM_FRAMES_FIELD_NUMBER: _ClassVar[int]
    PFC_FIELD_NUMBER: _ClassVar[int]
    CREDITS_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_FIELD_NUMBER: _ClassVar[int]
    ON_WIRE_FIELD_NUMBER: _ClassVar[int]
    port: int
    rx_packets: int
    rx_bytes: int
    tx_packets: int
    tx_bytes: int
    drops: Counts
    corrupted: int
    duplicated: int
    reordered: int
    queues: QueueStats
    service_lag: Lag
    storm_frames: int
    pfc: _containers.RepeatedCompositeFieldContainer[PfcStats]
    credits: _containers.RepeatedCompositeFieldContainer[CreditStats]
    tunnel: TunnelStats
    on_wire: int
    def __init__(self, port: _Optional[int] = ..., rx_packets: _Optional[int] = ..., rx_bytes: _Optional[int] = ..., tx_packets: _Optional[int] = ..., tx_bytes: _Optional[int] = ..., drops: _Optional[_Union[Counts, _Mapping]] = ..., corrupted: _Optional[int] = ..., duplicated: _Optional[int] = ..., reordered: _Optional[int] = ..., queues: _Optional[_Union[QueueStats, _Mapping]] = ..., service_lag: _Optional[_Union[Lag, _Mapping]] = ..., storm_frames: _Optional[int] = ..., pfc: _Optional[_Iterable[_Union[PfcStats, _Mapping]]] = ..., credits: _Optional[_Iterable[_Union[CreditStats, _Mapping]]] = ..., tunnel: _Optional[_Union[TunnelStats, _Mapping]] = ..., on_wire: _Optional[int] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("priority", "depth_packets", "depth_bytes", "max_packets", "max_bytes", "enqueued_packets", "enqueued_bytes", "dropped_packets", "dropped_bytes")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    DEPTH_PACKETS_FIELD_NUMBER: _ClassVar[int]
    DEPTH_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_PACKETS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_PACKETS_FIELD_NUMBER: _ClassVar[int]
    ENQUEUED_BYTES_FIELD_NUMBER: _ClassVar[int]
    DROPPED_PACKETS_FIELD_NUMBER: _ClassVar[int]
    DROPPED_BYTES_FIELD_NUMBER: _ClassVar[int]
    priority: _containers.RepeatedScalarFieldContainer[int]
    depth_packets: _containers.RepeatedScalarFieldContainer[int]
    depth_bytes: _containers.RepeatedScalarFieldContainer[int]
    max_packets: _containers.RepeatedScalarFieldContainer[int]
    max_bytes: _containers.RepeatedScalarFieldContainer[int]
    enqueued_packets: _containers.RepeatedScalarFieldContainer[int]
    enqueued_bytes: _containers.RepeatedScalarFieldContainer[int]
    dropped_packets: _containers.RepeatedScalarFieldContainer[int]
    dropped_bytes: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, priority: _Optional[_Iterable[int]] = ..., depth_packets: _Optional[_Iterable[int]] = ..., depth_bytes: _Optional[_Iterable[int]] = ..., max_packets: _Optional[_Iterable[int]] = ..., max_bytes: _Optional[_Iterable[int]] = ..., enqueued_packets: _Optional[_Iterable[int]] = ..., enqueued_bytes: _Optional[_Iterable[int]] = ..., dropped_packets: _Optional[_Iterable[int]] = ..., dropped_bytes: _Optional[_Iterable[int]] = ...) -> None: ...

class PfcStats(_message.Message):
    __slots__ = ("priority", "held_bytes", "max_held_bytes", "pauses_sent", "resumes_sent", "pauses_received", "resumes_received", "pausing_ns", "paused_ns", "storms", "watchdog_drops", "headroom_drops", "enabled", "pausing", "paused", "storm")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    PAUSES_SENT_FIELD_NUMBER: _ClassVar[int]
    RESUMES_SENT_FIELD_NUMBER: _ClassVar[int]
    PAUSES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    RESUMES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    PAUSING_NS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_NS_FIELD_NUMBER: _ClassVar[int]
    STORMS_FIELD_NUMBER: _ClassVar[int]
    WATCHDOG_DROPS_FIELD_NUMBER: _ClassVar[int]
    HEADROOM_DROPS_FIELD_NUMBER: _ClassVar[int]
    ENABLED_FIELD_NUMBER: _ClassVar[int]
    PAUSING_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    STORM_FIELD_NUMBER: _ClassVar[int]
    priority: int
    held_bytes: int
    max_held_bytes: int
    pauses_sent: int
    resumes_sent: int
    pauses_received: int
    resumes_received: int
    pausing_ns: int
    paused_ns: int
    storms: int
    watchdog_drops: int
    headroom_drops: int
    enabled: bool
    pausing: bool
    paused: bool
    storm: bool
    def __init__(self, priority: _Optional[int] = ..., held_bytes: _Optional[int] = ..., max_held_bytes: _Optional[int] = ..., pauses_sent: _Optional[int] = ..., resumes_sent: _Optional[int] = ..., pauses_received: _Optional[int] = ..., resumes_received: _Optional[int] = ..., pausing_ns: _Optional[int] = ..., paused_ns: _Optional[int] = ..., storms: _Optional[int] = ..., watchdog_drops: _Optional[int] = ..., headroom_drops: _Optional[int] = ..., enabled: _Optional[bool] = ..., pausing: _Optional[bool] = ..., paused: _Optional[bool] = ..., storm: _Optional[bool] = ...) -> None: ...

class CreditStats(_message.Message):
    __slots__ = ("priority", "buffer_bytes", "credit_bytes", "least_credit_bytes", "held_bytes", "max_held_bytes", "updates_sent", "updates_received", "stalls", "stall_ns", "stalled")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    BUFFER_BYTES_FIELD_NUMBER: _ClassVar[int]
    CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEAST_CREDIT_BYTES_FIELD_NUMBER: _ClassVar[int]
    HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_HELD_BYTES_FIELD_NUMBER: _ClassVar[int]
    UPDATES_SENT_FIELD_NUMBER: _ClassVar[int]
    UPDATES_RECEIVED_FIELD_NUMBER: _ClassVar[int]
    STALLS_FIELD_NUMBER: _ClassVar[int]
    STALL_NS_FIELD_NUMBER: _ClassVar[int]
    STALLED_FIELD_NUMBER: _ClassVar[int]
    priority: int
    buffer_bytes: int
    credit_bytes: int
    least_credit_bytes: int
    held_bytes: int
    max_held_bytes: int
    updates_sent: int
    updates_received: int
    stalls: int
    stall_ns: int
    stalled: bool
    def __init__(self, priority: _Optional[int] = ..., buffer_bytes: _Optional[int] = ..., credit_bytes: _Optional[int] = ..., least_credit_bytes: _Optional[int] = ..., held_bytes: _Optional[int] = ..., max_held_bytes: _Optional[int] = ..., updates_sent: _Optional[int] = ..., updates_received: _Optional[int] = ..., stalls: _Optional[int] = ..., stall_ns: _Optional[int] = ..., stalled: _Optional[bool] = ...) -> None: ...

class TunnelStats(_message.Message):
    __slots__ = ("sent", "received", "lost", "late", "refused", "repeated")
    SENT_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    sent: int
    received: int
    lost: int
    late: int
    refused: int
    repeated: int
    def __init__(self, sent: _Optional[int] = ..., received: _Optional[int] = ..., lost: _Optional[int] = ..., late: _Optional[int] = ..., refused: _Optional[int] = ..., repeated: _Optional[int] = ...) -> None: ...

class Lag(_message.Message):
    __slots__ = ("count", "p50_ns", "p90_ns", "p99_ns", "max_ns")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    P50_NS_FIELD_NUMBER: _ClassVar[int]
    P90_NS_FIELD_NUMBER: _ClassVar[int]
    P99_NS_FIELD_NUMBER: _ClassVar[int]
    MAX_NS_FIELD_NUMBER: _ClassVar[int]
    count: int
    p50_ns: int
    p90_ns: int
    p99_ns: int
    max_ns: int
    def __init__(self, count: _Optional[int] = ..., p50_ns: _Optional[int] = ..., p90_ns: _Optional[int] = ..., p99_ns: _Optional[int] = ..., max_ns: _Optional[int] = ...) -> None: ...

class SamplesRequest(_message.Message):
    __slots__ = ("priority", "reasons", "counters")
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    REASONS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    priority: int
    reasons: _containers.RepeatedScalarFieldContainer[str]
    counters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, priority: _Optional[int] = ..., reasons: _Optional[_Iterable[str]] = ..., counters: _Optional[_Iterable[str]] = ...) -> None: ...

class SamplesResponse(_message.Message):
    __slots__ = ("now_ns", "device_id", "state", "ports", "rows", "counters")
    NOW_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    now_ns: int
    device_id: _containers.RepeatedScalarFieldContainer[int]
    state: _containers.RepeatedScalarFieldContainer[SwitchState]
    ports: _containers.RepeatedScalarFieldContainer[int]
    rows: bytes
    counters: _containers.RepeatedCompositeFieldContainer[Counts]
    def __init__(self, now_ns: _Optional[int] = ..., device_id: _Optional[_Iterable[int]] = ..., state: _Optional[_Iterable[_Union[SwitchState, str]]] = ..., ports: _Optional[_Iterable[int]] = ..., rows: _Optional[bytes] = ..., counters: _Optional[_Iterable[_Union[Counts, _Mapping]]] = ...) -> None: ...

class LatenessRequest(_message.Message):
    __slots__ = ("reset",)
    RESET_FIELD_NUMBER: _ClassVar[int]
    reset: bool
    def __init__(self, reset: _Optional[bool] = ...) -> None: ...

class LatenessResponse(_message.Message):
    __slots__ = ("loop", "busy", "cpu_share", "events")
    LOOP_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    CPU_SHARE_FIELD_NUMBER: _ClassVar[int]
    EVENTS_FIELD_NUMBER: _ClassVar[int]
    loop: Lag
    busy: Lag
    cpu_share: float
    events: int
    def __init__(self, loop: _Optional[_Union[Lag, _Mapping]] = ..., busy: _Optional[_Union[Lag, _Mapping]] = ..., cpu_share: _Optional[float] = ..., events: _Optional[int] = ...) -> None: ...

class TraceRequest(_message.Message):
    __slots__ = ("file",)
    FILE_FIELD_NUMBER: _ClassVar[int]
    file: str
    def __init__(self, file: _Optional[str] = ...) -> None: ...

class SwitchRequest(_message.Message):
    __slots__ = ("device_id",)
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    def __init__(self, device_id: _Optional[int] = ...) -> None: ...

class AddSwitchRequest(_message.Message):
    __slots__ = ("device_id", "name", "priority_queues", "drop_port", "cpu_port", "loop_limit")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_QUEUES_FIELD_NUMBER: _ClassVar[int]
    DROP_PORT_FIELD_NUMBER: _ClassVar[int]
    CPU_PORT_FIELD_NUMBER: _ClassVar[int]
    LOOP_LIMIT_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    name: str
    priority_queues: int
    drop_port: int
    cpu_port: int
    loop_limit: int
    def __init__(self, device_id: _Optional[int] = ..., name: _Optional[str] = ..., priority_queues: _Optional[int] = ..., drop_port: _Optional[int] = ..., cpu_port: _Optional[int] = ..., loop_limit: _Optional[int] = ...) -> None: ...

class SetStateRequest(_message.Message):
    __slots__ = ("device_id", "state")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    state: SwitchState
    def __init__(self, device_id: _Optional[int] = ..., state: _Optional[_Union[SwitchState, str]] = ...) -> None: ...

class RestartRequest(_message.Message):
    __slots__ = ("device_id", "disconnect")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    DISCONNECT_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    disconnect: bool
    def __init__(self, device_id: _Optional[int] = ..., disconnect: _Optional[bool] = ...) -> None: ...

class AddPortRequest(_message.Message):
    __slots__ = ("device_id", "port", "interface", "name", "to_host", "to_switch", "pcap")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    INTERFACE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TO_HOST_FIELD_NUMBER: _ClassVar[int]
    TO_SWITCH_FIELD_NUMBER: _ClassVar[int]
    PCAP_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    port: int
    interface: str
    name: str
    to_host: LinkSettings
    to_switch: LinkSettings
    pcap: str
    def __init__(self, device_id: _Optional[int] = ..., port: _Optional[int] = ..., interface: _Optional[str] = ..., name: _Optional[str] = ..., to_host: _Optional[_Union[LinkSettings, _Mapping]] = ..., to_switch: _Optional[_Union[LinkSettings, _Mapping]] = ..., pcap: _Optional[str] = ...) -> None: ...

class SetPortLinkRequest(_message.Message):
    __slots__ = ("at", "outgoing", "incoming")
    AT_FIELD_NUMBER: _ClassVar[int]
    OUTGOING_FIELD_NUMBER: _ClassVar[int]
    INCOMING_FIELD_NUMBER: _ClassVar[int]
    at: End
    outgoing: LinkSettings
    incoming: LinkSettings
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., outgoing: _Optional[_Union[LinkSettings, _Mapping]] = ..., incoming: _Optional[_Union[LinkSettings, _Mapping]] = ...) -> None: ...

class SetPortUpRequest(_message.Message):
    __slots__ = ("at", "up", "direction")
    AT_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    at: End
    up: bool
    direction: PortDirection
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., up: _Optional[bool] = ..., direction: _Optional[_Union[PortDirection, str]] = ...) -> None: ...

class SetQueueRequest(_message.Message):
    __slots__ = ("at", "limits", "priority")
    AT_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    at: End
    limits: QueueLimits
    priority: int
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., limits: _Optional[_Union[QueueLimits, _Mapping]] = ..., priority: _Optional[int] = ...) -> None: ...

class SetPfcRequest(_message.Message):
    __slots__ = ("at", "priority", "settings", "source_mac")
    AT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_MAC_FIELD_NUMBER: _ClassVar[int]
    at: End
    priority: int
    settings: PfcSettings
    source_mac: int
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., priority: _Optional[int] = ..., settings: _Optional[_Union[PfcSettings, _Mapping]] = ..., source_mac: _Optional[int] = ...) -> None: ...

class SetCreditsRequest(_message.Message):
    __slots__ = ("at", "priority", "settings", "source_mac")
    AT_FIELD_NUMBER: _ClassVar[int]
    PRIORITY_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    SOURCE_MAC_FIELD_NUMBER: _ClassVar[int]
    at: End
    priority: int
    settings: CreditSettings
    source_mac: int
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., priority: _Optional[int] = ..., settings: _Optional[_Union[CreditSettings, _Mapping]] = ..., source_mac: _Optional[int] = ...) -> None: ...

class CaptureRequest(_message.Message):
    __slots__ = ("at", "file", "snaplen", "label", "outside")
    AT_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    SNAPLEN_FIELD_NUMBER: _ClassVar[int]
    LABEL_FIELD_NUMBER: _ClassVar[int]
    OUTSIDE_FIELD_NUMBER: _ClassVar[int]
    at: End
    file: str
    snaplen: int
    label: str
    outside: bool
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., file: _Optional[str] = ..., snaplen: _Optional[int] = ..., label: _Optional[str] = ..., outside: _Optional[bool] = ...) -> None: ...

class AddLinkRequest(_message.Message):
    __slots__ = ("a", "b", "settings", "back")
    A_FIELD_NUMBER: _ClassVar[int]
    B_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    a: End
    b: End
    settings: LinkSettings
    back: LinkSettings
    def __init__(self, a: _Optional[_Union[End, _Mapping]] = ..., b: _Optional[_Union[End, _Mapping]] = ..., settings: _Optional[_Union[LinkSettings, _Mapping]] = ..., back: _Optional[_Union[LinkSettings, _Mapping]] = ...) -> None: ...

class SetLinkRequest(_message.Message):
    __slots__ = ("at", "settings", "direction")
    AT_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    at: End
    settings: LinkSettings
    direction: LinkDirection
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., settings: _Optional[_Union[LinkSettings, _Mapping]] = ..., direction: _Optional[_Union[LinkDirection, str]] = ...) -> None: ...

class SetLinkUpRequest(_message.Message):
    __slots__ = ("at", "up", "direction")
    AT_FIELD_NUMBER: _ClassVar[int]
    UP_FIELD_NUMBER: _ClassVar[int]
    DIRECTION_FIELD_NUMBER: _ClassVar[int]
    at: End
    up: bool
    direction: LinkDirection
    def __init__(self, at: _Optional[_Union[End, _Mapping]] = ..., up: _Optional[bool] = ..., direction: _Optional[_Union[LinkDirection, str]] = ...) -> None: ...

class FaultsResponse(_message.Message):
    __slots__ = ("faults",)
    FAULTS_FIELD_NUMBER: _ClassVar[int]
    faults: Counts
    def __init__(self, faults: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class ReadRequest(_message.Message):
    __slots__ = ("device_id", "name", "index")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    name: str
    index: int
    def __init__(self, device_id: _Optional[int] = ..., name: _Optional[str] = ..., index: _Optional[int] = ...) -> None: ...

class RegisterResponse(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedScalarFieldContainer[bytes]
    def __init__(self, values: _Optional[_Iterable[bytes]] = ...) -> None: ...

class WriteRegisterRequest(_message.Message):
    __slots__ = ("device_id", "name", "index", "value")
    DEVICE_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    device_id: int
    name: str
    index: int
    value: bytes
    def __init__(self, device_id: _Optional[int] = ..., name: _Optional[str] = ..., index: _Optional[int] = ..., value: _Optional[bytes] = ...) -> None: ...

class CounterResponse(_message.Message):
    __slots__ = ("values",)
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.RepeatedCompositeFieldContainer[CounterCell]
    def __init__(self, values: _Optional[_Iterable[_Union[CounterCell, _Mapping]]] = ...) -> None: ...

class CounterCell(_message.Message):
    __slots__ = ("packets", "bytes")
    PACKETS_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    packets: int
    bytes: int
    def __init__(self, packets: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...
