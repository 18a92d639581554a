/* C interface of the fabric core, as `fabric/core.py` binds it. Units are in the names; every function takes the
 * fabric's lock itself unless it says otherwise. Functions that return int give 0, or a PF_E* code. */
#ifndef P4LITE_FABRIC_H
#define P4LITE_FABRIC_H

#include <stdint.h>

#include "pipeline.h"

#define PF_ABI 1u
#define PF_MAX_PRIORITIES 8u
#define PF_NO_TIME UINT64_MAX

enum pf_error {
    PF_OK = 0,
    PF_E_MEMORY = -1,
    PF_E_RANGE = -2,    /* a number out of its range */
    PF_E_EXISTS = -3,
    PF_E_MISSING = -4,
    PF_E_BUSY = -5,     /* the port has a link or an interface already */
    PF_E_PAST = -6,     /* a time that the fabric has left behind */
    PF_E_SYSTEM = -7,   /* errno says why */
    PF_E_CLOCK = -8,    /* not on this clock, or the loop runs */
    PF_E_LOOP = -9,     /* packets go round without any delay: time stands still */
};

enum pf_state { PF_RUNNING, PF_FROZEN, PF_STOPPED };

/* Losses at a port; the order is that of `PORT_DROPS` in fabric/core.py. */
enum pf_port_drop {
    PF_D_QUEUE_FULL,
    PF_D_BUFFER_FULL,
    PF_D_LINK_DOWN,
    PF_D_LOSS,
    PF_D_BURST_LOSS,
    PF_D_BLACKHOLE,
    PF_D_NOT_RUNNING,
    PF_D_HOST_QUEUE_FULL,
    PF_D_DEVICE,
    PF_D_RX_RING,
    PF_D_NO_PEER,
    PF_D_MEMORY,
    PF_PORT_DROPS
};

/* Losses in a switch; the order is that of `SWITCH_DROPS` in fabric/core.py. */
enum pf_switch_drop {
    PF_S_INGRESS,
    PF_S_EGRESS,
    PF_S_PRIORITY,
    PF_S_MCAST_GROUP,
    PF_S_CLONE_SESSION,
    PF_S_LOOP_LIMIT,
    PF_S_NO_PROGRAM,
    PF_S_NO_PORT,
    PF_S_TOO_LONG,
    PF_S_FLUSHED,
    PF_S_MEMORY,
    PF_SWITCH_DROPS
};

struct pf_link_settings {
    uint64_t rate_bps;
    uint64_t delay_ns;
    uint64_t reorder_extra_ns;
    uint64_t host_queue_bytes;
    double loss, ge_to_bad, ge_to_good, ge_loss_bad, ge_loss_good, corrupt, duplicate, reorder;
    uint32_t overhead_bytes;
    uint32_t blackhole;
};

struct pf_replica {
    uint32_t port, rid;
};

struct pf_lag {
    uint64_t count, p50_ns, p90_ns, p99_ns, max_ns;
};

struct pf_queue_stats {
    uint64_t depth_packets, depth_bytes, max_packets, max_bytes;
    uint64_t enqueued_packets, enqueued_bytes, dropped_packets, dropped_bytes;
};

struct pf_port_stats {
    uint64_t rx_packets, rx_bytes, tx_packets, tx_bytes;
    uint64_t drops[PF_PORT_DROPS];
    uint64_t corrupted, duplicated, reordered;
    struct pf_queue_stats queues[PF_MAX_PRIORITIES];
    struct pf_lag service_lag;
};

struct pf_switch_stats {
    uint64_t received, ingress, egress, transmitted;
    uint64_t drops[PF_SWITCH_DROPS];
    uint64_t ingress_clones, egress_clones, resubmits, recirculations, replicas, digests, parser_errors;
    uint64_t absorbed;      /* packets that ended here because copies went on in their place */
    uint64_t copies_missed; /* copies that were asked for and not made; `drops` has the reason */
    /* Ports that nobody added: the CPU port, and numbers that a program sent to. */
    uint64_t other_queued, other_drops[PF_PORT_DROPS];
};

struct pf_lateness {
    struct pf_lag loop, busy;
    uint64_t cpu_ns, wall_ns, events;
};

struct pf_config {
    uint32_t abi; /* PF_ABI */
    uint32_t real_clock;
    uint64_t seed;
    uint64_t busy_poll_ns;
    uint64_t realtime; /* the real clock's thread runs with SCHED_RR, priority 1 */
    uint64_t memory_limit_bytes; /* of packets and PHVs; what does not fit is dropped */
    uint64_t round_ns; /* the real clock wakes up at most once in this time; 0: for every event */
};

struct pf_switch_config {
    uint32_t device_id, priority_queues, drop_port, loop_limit;
    int64_t cpu_port; /* -1: none */
};

/* One delivered packet: where its bytes are in the batch. */
struct pf_delivery {
    uint64_t time_ns;
    uint32_t device_id, port;
    uint64_t offset, length;
};

struct pf_batch {
    const struct pf_delivery *records;
    const uint8_t *bytes;
    uint64_t count, size;
    uint64_t now_ns;
};

enum pf_notification_kind { PF_N_PACKET_IN, PF_N_DIGEST, PF_N_PORT_STATUS };

/* Head of a notification record; `length` bytes follow, padded to 8. */
struct pf_notification {
    uint64_t time_ns;
    uint32_t kind, device_id, ident, up;
    uint64_t length;
};

struct fabric;
struct sw;
struct port;

#pragma GCC visibility push(default)

struct fabric *pf_create(const struct pf_config *config);
void pf_destroy(struct fabric *f);
void pf_lock(struct fabric *f);
void pf_unlock(struct fabric *f);
struct p4_lock *pf_lock_address(struct fabric *f);
uint64_t pf_now(struct fabric *f);
uint64_t pf_events(struct fabric *f);

struct sw *pf_switch_add(struct fabric *f, const struct pf_switch_config *config);
/* The instance stays the caller's, must use the lock at pf_lock_address(), and outlive its use here. NULL: none.
 * What waits in the queues is flushed, groups and sessions go: they belong to the old program. */
int pf_switch_load(struct sw *s, struct p4_instance *instance);
int pf_switch_state(struct sw *s, uint32_t state);
/* Queues flushed, groups and sessions gone, running; the caller restarts the instance. */
int pf_switch_restart(struct sw *s);
/* Frees its ports and forgets its program; the structure stays until pf_destroy. */
int pf_switch_remove(struct sw *s);
/* Tells the instance the time, for what control operations read or stamp with it. */
void pf_switch_tick(struct sw *s);
int pf_switch_stats(struct sw *s, struct pf_switch_stats *out, uint32_t reset);
int pf_switch_group(struct sw *s, uint32_t group, const struct pf_replica *replicas, uint32_t count);
int pf_switch_group_delete(struct sw *s, uint32_t group);
/* port and group -1: none. */
int pf_switch_session(struct sw *s, uint32_t session, int64_t port, int64_t group,
                      const struct pf_replica *replicas, uint32_t count, uint32_t truncate_bytes);
int pf_switch_session_delete(struct sw *s, uint32_t session);
int pf_switch_packet_out(struct sw *s, const uint8_t *data, uint32_t len);

int pf_port_add(struct sw *s, uint32_t number, struct port **out);
int pf_port_remove(struct port *p);
int pf_port_link(struct port *a, struct port *b);
int pf_port_unlink(struct port *a);
/* Binds to an interface by name; it must exist now, and is looked for again when it vanishes. */
int pf_port_interface(struct port *p, const char *name);
/* outgoing 1: away from the switch; 0: towards it. */
int pf_port_settings(struct port *p, uint32_t outgoing, const struct pf_link_settings *settings);
int pf_port_up(struct port *p, uint32_t outgoing, uint32_t up);
int pf_port_is_up(struct port *p, uint32_t outgoing);
/* priority -1: each; -2: the buffer shared by all. 0: no limit. */
int pf_port_queue(struct port *p, int32_t priority, uint64_t packets, uint64_t bytes);
int pf_port_stats(struct port *p, struct pf_port_stats *out, uint32_t reset);
/* limited: what is written counts against pf_files_room, and the file ends when there is none left. */
int pf_port_capture(struct port *p, const char *path, uint32_t snaplen, uint32_t limited);
/* What leaves an external port is kept for pf_deliveries (1, default) or only counted (0). */
int pf_port_collect(struct port *p, uint32_t collect);
/* free_at: when the host's link is free again; PF_NO_TIME when its queue dropped the frame. */
int pf_port_inject(struct port *p, const uint8_t *data, uint32_t len, uint64_t at_ns, uint64_t *free_at);
/* `count` frames, cycling through `frames` (lengths[i] bytes each, back to back), one every interval_ns. */
int pf_port_generate(struct port *p, const uint8_t *frames, const uint32_t *lengths, uint32_t nframes,
                     uint64_t count, uint64_t start_ns, uint64_t interval_ns);

/* Virtual clock. With stop_on_delivery the run ends when no reaction to the first delivery can be missed.
 * `out`: what was delivered since the last call; valid until the next call of any function here. */
int pf_run(struct fabric *f, uint64_t until_ns, uint32_t stop_on_delivery, struct pf_batch *out);
uint64_t pf_next_event(struct fabric *f);

/* Real clock. */
int pf_start(struct fabric *f);
int pf_stop(struct fabric *f);
void pf_lateness(struct fabric *f, struct pf_lateness *out, uint32_t reset);

int pf_trace(struct fabric *f, const char *path, uint32_t limited);
/* So many bytes may be written to limited files from now on, all together. */
void pf_files_room(struct fabric *f, uint64_t bytes);
int pf_notify_fd(struct fabric *f);
/* Copies whole records, returns their bytes. */
uint64_t pf_notify_take(struct fabric *f, uint8_t *out, uint64_t cap);
uint64_t pf_notify_lost(struct fabric *f);

#pragma GCC visibility pop

#endif
