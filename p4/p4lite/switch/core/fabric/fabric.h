/* C interface of the fabric core; `fabric/core.py` builds its structures from what describe.c says of them. Units are in the names; every function takes the
 * fabric's lock itself unless it says otherwise. Functions that return int give 0, or a PF_E* code. */
#ifndef P4LITE_FABRIC_H
#define P4LITE_FABRIC_H

#include <stdint.h>

#include "describe.h"
#include "pipeline.h"

#define PF_ABI 1u
#define PF_MAX_PRIORITIES 8u
#define PF_NO_TIME UINT64_MAX
#define PF_NONE (-1)         /* no CPU port; no port or group of a clone session */
#define PF_TAIL_BYTES 4u     /* of a packet with missing bytes, behind these: the check (ICRC) */
#define PF_LEAST_STORED 64u  /* of such a packet */
#define PF_QUEUE_EACH (-1)   /* the queue of each priority */
#define PF_QUEUE_BUFFER (-2) /* the buffer that all share */

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

/* Losses at a port, and their names in traces and statistics. */
#define PF_PORT_DROP_REASONS(X) \
    X(QUEUE_FULL, "queue_full") \
    X(BUFFER_FULL, "buffer_full") \
    X(LINK_DOWN, "link_down") \
    X(LOSS, "loss") \
    X(BURST_LOSS, "burst_loss") \
    X(BLACKHOLE, "blackhole") \
    X(NOT_RUNNING, "not_running") \
    X(HOST_QUEUE_FULL, "host_queue_full") \
    X(DEVICE, "device") \
    X(RX_RING, "rx_ring") \
    X(NO_PEER, "no_peer") \
    X(MEMORY, "memory") \
    X(HEADROOM_FULL, "headroom_full") \
    X(PFC_WATCHDOG, "pfc_watchdog") \
    X(OVER_BUFFER, "over_buffer")
#define PF_PORT_DROP(name, text) PF_D_##name,
enum pf_port_drop { PF_PORT_DROP_REASONS(PF_PORT_DROP) PF_PORT_DROPS };

/* Losses in a switch. */
#define PF_SWITCH_DROP_REASONS(X) \
    X(INGRESS, "ingress") \
    X(EGRESS, "egress") \
    X(PRIORITY, "priority") \
    X(MCAST_GROUP, "mcast_group") \
    X(CLONE_SESSION, "clone_session") \
    X(LOOP_LIMIT, "loop_limit") \
    X(NO_PROGRAM, "no_program") \
    X(NO_PORT, "no_port") \
    X(TOO_LONG, "too_long") \
    X(FLUSHED, "flushed") \
    X(MEMORY, "memory")
#define PF_SWITCH_DROP(name, text) PF_S_##name,
enum pf_switch_drop { PF_SWITCH_DROP_REASONS(PF_SWITCH_DROP) PF_SWITCH_DROPS };

#define PF_TRACED_DROP(name, text) "drop:" text,

struct pf_link_settings {
    uint64_t rate_bps;
    uint64_t delay_ns;
    uint64_t reorder_extra_ns;
    uint64_t host_queue_bytes;
    uint64_t pause_storm_mac; /* towards the switch only: the host asks for pauses without end, from this address; 0: no */
    double loss, ge_to_bad, ge_to_good, ge_loss_bad, ge_loss_good, corrupt, duplicate, reorder;
    uint32_t overhead_bytes;
    uint32_t blackhole;
};

struct pf_replica {
    uint32_t port, rid;
};

/* Priority flow control (IEEE 802.1Qbb) of one priority at one port. The peer is asked to pause when more than xoff_bytes
 * that came in here wait in the switch, for `quanta` of 512 bit times of the link, again after half of that, and to go on
 * at xon_bytes; beyond xoff_bytes + headroom_bytes packets are dropped. The watchdog: a queue that is paused for
 * detection_ns (0: none) loses what waits and what comes, until no pause was requested for restoration_ns. */
struct pf_pfc_settings {
    uint64_t xoff_bytes, xon_bytes, headroom_bytes, quanta, detection_ns, restoration_ns;
    uint64_t source_mac; /* of the pause frames; of the port, the last one given counts */
};

/* pausing_ns: how long the peer was to hold back; paused_ns: how long this port was. Frames are counted, refreshed ones too. */
struct pf_pfc_stats {
    uint64_t held_bytes, max_held_bytes;
    uint64_t pauses_sent, resumes_sent, pauses_received, resumes_received;
    uint64_t pausing_ns, paused_ns;
    uint64_t storms, watchdog_drops, headroom_drops;
    uint64_t enabled, pausing, paused, storm; /* 0 or 1, now */
};

/* Credits of one priority at one port: the peer may send what fits into buffer_bytes (whole blocks of 64) of this port's
 * receiver, and the port what fits into the peer's; a host's buffer is as large. Of what a host sends, packets with these
 * DSCPs (bits) are of this priority. */
struct pf_credit_settings {
    uint64_t buffer_bytes, dscps;
    uint64_t source_mac; /* of the updates; of the port, the last one given counts */
};

/* credit_bytes: what may be sent now; held_bytes: what came in and waits in the switch; stall_ns: how long the transmitter
 * was free and something waited that had no credit. */
struct pf_credit_stats {
    uint64_t buffer_bytes, credit_bytes, least_credit_bytes, held_bytes, max_held_bytes;
    uint64_t updates_sent, updates_received;
    uint64_t stalls, stall_ns;
    uint64_t stalled; /* 0 or 1, now */
};

/* Of a port that is a tunnel (pf_port_tunnel). `lost`: of the numbers that its peer sent, those that have not come (yet);
 * `late`: those that came after a higher one. `refused`: datagrams that are not the peer's, or not whole; `repeated`: those
 * that had come before, or are too old to tell. */
struct pf_tunnel_stats {
    uint64_t sent, received, lost, late, refused, repeated;
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
    uint64_t storm_frames; /* that a host with pause_storm_mac sent */
    uint64_t on_wire;      /* on the link now: what the port has sent, and what its host has */
    struct pf_queue_stats queues[PF_MAX_PRIORITIES];
    struct pf_lag service_lag;
};

/* What a sample of a port holds: depths of one priority's queue, all drops, and those of some reasons. `controls`: 1 it has
 * priority flow control, 2 credits; `up`: 1 outgoing, 2 incoming. */
struct pf_port_sample {
    uint64_t tx_bytes, depth_bytes, max_bytes, drops, some_drops, storm_frames, controls, rx_bytes, up;
};

struct pf_switch_stats {
    uint64_t received, ingress, egress, transmitted;
    uint64_t drops[PF_SWITCH_DROPS];
    uint64_t ingress_clones, egress_clones, resubmits, recirculations, replicas, digests, parser_errors;
    uint64_t absorbed;      /* packets that ended here because copies went on in their place */
    uint64_t copies_missed; /* copies that were asked for and not made; `drops` has the reason */
    /* Ports that were not added: the CPU port, and numbers that a program sent to. */
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
    int64_t cpu_port; /* PF_NONE: none */
};

/* A host's side of its link: `rate_rest` is the fraction of a nanosecond carried over to the next packet, times the rate. */
struct pf_transmitter {
    uint64_t rate_bps, overhead_bytes, host_queue_bytes, free_at_ns, rate_rest;
};

/* A frame from a host: which of its ports, when, and when the host takes its link to be free again (PF_NO_TIME: the frame
 * is dropped). Of its `length` bytes, `missing` ones before the last PF_TAIL_BYTES may not be there: they count and take
 * their time like others, but are not stored; at least PF_LEAST_STORED, all headers among them, are. */
struct pf_send {
    uint64_t port;
    uint32_t length, missing;
    uint64_t at_ns, free_at_ns;
};

/* Bytes of frames. Where `owner` is not NULL the fabric may refer to them without a copy; it then sets `owner` to NULL, and
 * they must stay until pf_returned names it. */
struct pf_piece {
    const uint8_t *bytes;
    uint64_t length;
    void *owner;
};

/* One delivered packet: its length - missing bytes at `stored`, and those that are missing before the last PF_TAIL_BYTES at
 * `middle`, which `owner` lent, unless that is NULL. All are in place until the next run, or until a change of
 * state delivers more: who reads them holds the lock (pf_lock) from the run on. */
struct pf_delivery {
    uint64_t time_ns;
    uint32_t device_id, port;
    uint32_t length, missing;
    const uint8_t *stored, *middle;
    void *owner;
};

struct pf_batch {
    const struct pf_delivery *records;
    uint64_t count;
    uint64_t now_ns, known_ns; /* what arrives outside up to known_ns has been delivered */
};

_Static_assert(sizeof(struct pf_send) == 4 * sizeof(uint64_t), "frames of hosts are lists of words");
_Static_assert(sizeof(struct pf_delivery) == 48, "deliveries are read in bulk: no holes");

enum pf_notification_kind { PF_N_PACKET_IN, PF_N_DIGEST, PF_N_PORT_STATUS };

/* Head of a notification record; `length` bytes follow, padded to 8. */
struct pf_notification {
    uint64_t time_ns;
    uint32_t kind, device_id, ident, up;
    uint64_t length;
};
_Static_assert(sizeof(struct pf_notification) == 32 && offsetof(struct pf_notification, length) == 24,
               "records follow each other at multiples of 8 bytes: no holes");
_Static_assert(offsetof(struct pf_config, abi) == 0, "the first that pf_create looks at");

struct fabric;
struct sw;
struct port;

#pragma GCC visibility push(default)

const struct p4_description *pf_description(void);

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
/* port and group PF_NONE: none. */
int pf_switch_session(struct sw *s, uint32_t session, int64_t port, int64_t group,
                      const struct pf_replica *replicas, uint32_t count, uint32_t truncate_bytes);
int pf_switch_session_delete(struct sw *s, uint32_t session);
int pf_switch_packet_out(struct sw *s, const uint8_t *data, uint32_t len);

int pf_port_add(struct sw *s, uint32_t number, struct port **out);
int pf_port_remove(struct port *p);
/* A wire through a switch: what comes in at one of its ports goes out at the other, whether or not it runs a program;
 * each keeps its own link, queue of priority 0, counters and captures. It ends with either port. */
int pf_port_patch(struct port *a, struct port *b);
int pf_port_link(struct port *a, struct port *b);
int pf_port_unlink(struct port *a);
/* Opens interfaces all at once, for ports that are bound to them later: one by one takes the kernel long. It tells of none
 * that cannot be opened: binding to it does. */
int pf_open_interfaces(struct fabric *f, const char *const *names, uint32_t count);
/* Binds to an interface by name; it must exist now, and is looked for again when it vanishes. */
int pf_port_interface(struct port *p, const char *name);
/* Makes the port one end of a link whose other end is on another machine: its frames go through a UDP socket that is bound
 * and connected, and ours from then on. `key` has 16 bytes; `from` and `to` are the numbers of our end and of the peer's. */
int pf_port_tunnel(struct port *p, int socket, const uint8_t *key, uint32_t from, uint32_t to);
/* PF_E_MISSING: it is none. */
int pf_port_tunnel_stats(struct port *p, struct pf_tunnel_stats *out, uint32_t reset);
/* outgoing 1: away from the switch; 0: towards it. */
int pf_port_settings(struct port *p, uint32_t outgoing, const struct pf_link_settings *settings);
int pf_port_up(struct port *p, uint32_t outgoing, uint32_t up);
int pf_port_is_up(struct port *p, uint32_t outgoing);
/* priority, or PF_QUEUE_EACH, or PF_QUEUE_BUFFER. 0: no limit. */
int pf_port_queue(struct port *p, int32_t priority, uint64_t packets, uint64_t bytes);
int pf_port_stats(struct port *p, struct pf_port_stats *out, uint32_t reset);
/* Of many ports in one go; `reasons`: bits of pf_port_drop that count in some_drops. */
int pf_port_samples(struct fabric *f, struct port *const *ports, uint32_t count, uint32_t priority, uint64_t reasons,
                    struct pf_port_sample *out);
/* NULL: off (default). */
int pf_port_pfc(struct port *p, uint32_t priority, const struct pf_pfc_settings *settings);
/* Fills PF_MAX_PRIORITIES of them if the port has or had flow control; returns the priorities that have it, as bits. */
uint32_t pf_port_pfc_stats(struct port *p, struct pf_pfc_stats *out);
/* NULL: off (default). PF_E_BUSY: the port has priority flow control. PF_E_EXISTS: with another buffer. */
int pf_port_credits(struct port *p, uint32_t priority, const struct pf_credit_settings *settings);
/* Like pf_port_pfc_stats. */
uint32_t pf_port_credit_stats(struct port *p, struct pf_credit_stats *out);
/* PF_CAPTURE_LIMITED: what is written counts against pf_files_room, and the file ends when there is none left.
 * PF_CAPTURE_OUTSIDE: directions are those of the other end of the cable. label: the interface's name in the file. */
#define PF_CAPTURE_LIMITED 1u
#define PF_CAPTURE_OUTSIDE 2u
int pf_port_capture(struct port *p, const char *path, const char *label, uint32_t snaplen, uint32_t flags);
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
/* Many hosts at once, virtual clock. `ports` are theirs; `transmitters` (as many) is what decides when they are free. */
int pf_transmitters(struct fabric *f, struct port *const *ports, uint32_t count, struct pf_transmitter *transmitters,
                    uint64_t *lookahead_ns);
/* What hosts sent, for each port in order of time; `bytes` holds the frames back to back. The order of frames of several
 * ports does not matter, and neither does the time to which the fabric has run: frames that arrive at one instant are
 * taken in order of the times at which they were sent, and then of their ports. `told`: how many took their link for another
 * time than they said, and after an error which was refused. */
int pf_send(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
            struct pf_piece *pieces, uint64_t *told);
/* pf_send, then pf_run with stop_on_delivery. What is certain to arrive outside by `foresee_ns` is delivered before its
 * time: the caller promises that until then nothing changes but by what hosts send. */
int pf_exchange(struct fabric *f, struct port *const *ports, const struct pf_send *sends, uint64_t count,
                struct pf_piece *pieces, uint64_t until_ns, uint64_t foresee_ns, uint64_t *told, struct pf_batch *out);
/* Writes up to `room` owners of pieces to which no packet refers any more, each once, and returns how many. `all`: of all
 * pieces; nothing may follow but pf_destroy. */
uint64_t pf_returned(struct fabric *f, void **owners, uint64_t room, uint32_t all);

/* Real clock. */
int pf_start(struct fabric *f);
int pf_stop(struct fabric *f);
void pf_lateness(struct fabric *f, struct pf_lateness *out, uint32_t reset);

int pf_trace(struct fabric *f, const char *path, uint32_t limited);
/* Set how many bytes may be written to limited files from now on, all together. */
void pf_files_room(struct fabric *f, uint64_t bytes);
int pf_notify_fd(struct fabric *f);
/* Copies whole records, returns their bytes. */
uint64_t pf_notify_take(struct fabric *f, uint8_t *out, uint64_t cap);
uint64_t pf_notify_lost(struct fabric *f);

#pragma GCC visibility pop

#endif
