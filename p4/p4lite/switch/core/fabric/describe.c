/* The structures and enumerations of fabric.h. */
#include "describe.h"
#include "fabric.h"

#define LINK(f) P4_FIELD(pf_link_settings, f)
#define LAG(f) P4_FIELD(pf_lag, f)
#define QUEUE(f) P4_FIELD(pf_queue_stats, f)
#define PORT(f) P4_FIELD(pf_port_stats, f)
#define SAMPLE(f) P4_FIELD(pf_port_sample, f)
#define SWITCH(f) P4_FIELD(pf_switch_stats, f)
#define LATENESS(f) P4_FIELD(pf_lateness, f)
#define CONFIG(f) P4_FIELD(pf_config, f)
#define SWITCH_CONFIG(f) P4_FIELD(pf_switch_config, f)
#define DELIVERY(f) P4_FIELD(pf_delivery, f)
#define BATCH(f) P4_FIELD(pf_batch, f)
#define PIECE(f) P4_FIELD(pf_piece, f)
#define TRANSMITTER(f) P4_FIELD(pf_transmitter, f)
#define SEND(f) P4_FIELD(pf_send, f)
#define PFC(f) P4_FIELD(pf_pfc_settings, f)
#define PFC_STATS(f) P4_FIELD(pf_pfc_stats, f)
#define CREDIT(f) P4_FIELD(pf_credit_settings, f)
#define CREDIT_STATS(f) P4_FIELD(pf_credit_stats, f)
#define TUNNEL(f) P4_FIELD(pf_tunnel_stats, f)
#define NOTE(f) P4_FIELD(pf_notification, f)
#define ERROR(n) P4_CONSTANT(pf_error, PF_E_, n)
#define PORT_DROP(n, text) P4_CONSTANT(pf_port_drop, PF_D_, n),
#define SWITCH_DROP(n, text) P4_CONSTANT(pf_switch_drop, PF_S_, n),

static const struct p4_described rows[] = {
    P4_STRUCT(pf_link_settings), LINK(rate_bps), LINK(delay_ns), LINK(reorder_extra_ns), LINK(host_queue_bytes),
    LINK(pause_storm_mac),
    LINK(loss), LINK(ge_to_bad), LINK(ge_to_good), LINK(ge_loss_bad), LINK(ge_loss_good), LINK(corrupt),
    LINK(duplicate), LINK(reorder), LINK(overhead_bytes), LINK(blackhole),
    P4_STRUCT(pf_replica), P4_FIELD(pf_replica, port), P4_FIELD(pf_replica, rid),
    P4_STRUCT(pf_pfc_settings), PFC(xoff_bytes), PFC(xon_bytes), PFC(headroom_bytes), PFC(quanta), PFC(detection_ns),
    PFC(restoration_ns), PFC(source_mac),
    P4_STRUCT(pf_pfc_stats), PFC_STATS(held_bytes), PFC_STATS(max_held_bytes), PFC_STATS(pauses_sent),
    PFC_STATS(resumes_sent), PFC_STATS(pauses_received), PFC_STATS(resumes_received), PFC_STATS(pausing_ns),
    PFC_STATS(paused_ns), PFC_STATS(storms), PFC_STATS(watchdog_drops), PFC_STATS(headroom_drops), PFC_STATS(enabled),
    PFC_STATS(pausing), PFC_STATS(paused), PFC_STATS(storm),
    P4_STRUCT(pf_credit_settings), CREDIT(buffer_bytes), CREDIT(dscps), CREDIT(source_mac),
    P4_STRUCT(pf_credit_stats), CREDIT_STATS(buffer_bytes), CREDIT_STATS(credit_bytes),
    CREDIT_STATS(least_credit_bytes), CREDIT_STATS(held_bytes), CREDIT_STATS(max_held_bytes),
    CREDIT_STATS(updates_sent), CREDIT_STATS(updates_received), CREDIT_STATS(stalls), CREDIT_STATS(stall_ns),
    CREDIT_STATS(stalled),
    P4_STRUCT(pf_tunnel_stats), TUNNEL(sent), TUNNEL(received), TUNNEL(lost), TUNNEL(late), TUNNEL(refused),
    TUNNEL(repeated),
    P4_STRUCT(pf_lag), LAG(count), LAG(p50_ns), LAG(p90_ns), LAG(p99_ns), LAG(max_ns),
    P4_STRUCT(pf_queue_stats), QUEUE(depth_packets), QUEUE(depth_bytes), QUEUE(max_packets), QUEUE(max_bytes),
    QUEUE(enqueued_packets), QUEUE(enqueued_bytes), QUEUE(dropped_packets), QUEUE(dropped_bytes),
    P4_STRUCT(pf_port_stats), PORT(rx_packets), PORT(rx_bytes), PORT(tx_packets), PORT(tx_bytes),
    P4_ARRAY(pf_port_stats, drops), PORT(corrupted), PORT(duplicated), PORT(reordered),
    PORT(storm_frames), PORT(on_wire),
    P4_NESTED(pf_port_stats, queues, pf_queue_stats), P4_NESTED(pf_port_stats, service_lag, pf_lag),
    P4_STRUCT(pf_port_sample), SAMPLE(tx_bytes), SAMPLE(depth_bytes), SAMPLE(max_bytes), SAMPLE(drops),
    SAMPLE(some_drops), SAMPLE(storm_frames), SAMPLE(controls), SAMPLE(rx_bytes), SAMPLE(up),
    P4_STRUCT(pf_switch_stats), SWITCH(received), SWITCH(ingress), SWITCH(egress), SWITCH(transmitted),
    P4_ARRAY(pf_switch_stats, drops), SWITCH(ingress_clones), SWITCH(egress_clones), SWITCH(resubmits),
    SWITCH(recirculations), SWITCH(replicas), SWITCH(digests), SWITCH(parser_errors), SWITCH(absorbed),
    SWITCH(copies_missed), SWITCH(other_queued), P4_ARRAY(pf_switch_stats, other_drops),
    P4_STRUCT(pf_lateness), P4_NESTED(pf_lateness, loop, pf_lag), P4_NESTED(pf_lateness, busy, pf_lag),
    LATENESS(cpu_ns), LATENESS(wall_ns), LATENESS(events),
    P4_STRUCT(pf_config), CONFIG(abi), CONFIG(real_clock), CONFIG(seed), CONFIG(busy_poll_ns), CONFIG(realtime),
    CONFIG(memory_limit_bytes), CONFIG(round_ns),
    P4_STRUCT(pf_switch_config), SWITCH_CONFIG(device_id), SWITCH_CONFIG(priority_queues), SWITCH_CONFIG(drop_port),
    SWITCH_CONFIG(loop_limit), SWITCH_CONFIG(cpu_port),
    P4_STRUCT(pf_delivery), DELIVERY(time_ns), DELIVERY(device_id), DELIVERY(port), DELIVERY(length),
    DELIVERY(missing), DELIVERY(stored), DELIVERY(middle), DELIVERY(owner),
    P4_STRUCT(pf_batch), BATCH(records), BATCH(count), BATCH(now_ns), BATCH(known_ns),
    P4_STRUCT(pf_piece), PIECE(bytes), PIECE(length), PIECE(owner),
    P4_STRUCT(pf_transmitter), TRANSMITTER(rate_bps), TRANSMITTER(overhead_bytes), TRANSMITTER(host_queue_bytes),
    TRANSMITTER(free_at_ns), TRANSMITTER(rate_rest),
    P4_STRUCT(pf_send), SEND(port), SEND(length), SEND(missing), SEND(at_ns), SEND(free_at_ns),
    P4_STRUCT(pf_notification), NOTE(time_ns), NOTE(kind), NOTE(device_id), NOTE(ident), NOTE(up), NOTE(length),
    ERROR(MEMORY), ERROR(RANGE), ERROR(EXISTS), ERROR(MISSING), ERROR(BUSY), ERROR(PAST), ERROR(SYSTEM),
    ERROR(CLOCK), ERROR(LOOP),
    P4_CONSTANT(pf_state, PF_, RUNNING), P4_CONSTANT(pf_state, PF_, FROZEN), P4_CONSTANT(pf_state, PF_, STOPPED),
    PF_PORT_DROP_REASONS(PORT_DROP)
    PF_SWITCH_DROP_REASONS(SWITCH_DROP)
    P4_CONSTANT(pf_notification_kind, PF_N_, PACKET_IN), P4_CONSTANT(pf_notification_kind, PF_N_, DIGEST),
    P4_CONSTANT(pf_notification_kind, PF_N_, PORT_STATUS),
    P4_CONSTANT(pf_constant, PF_, ABI), P4_CONSTANT(pf_constant, PF_, MAX_PRIORITIES),
    P4_CONSTANT(pf_constant, PF_, NO_TIME), P4_CONSTANT(pf_constant, PF_, QUEUE_EACH),
    P4_CONSTANT(pf_constant, PF_, QUEUE_BUFFER), P4_CONSTANT(pf_constant, PF_, NONE),
};

static const struct p4_description description = {rows, sizeof rows / sizeof rows[0]};

const struct p4_description *pf_description(void)
{
    return &description;
}
