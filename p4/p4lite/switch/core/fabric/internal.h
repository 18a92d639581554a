/* The data structures of the fabric core. Everything here is used under the fabric's lock. */
#ifndef P4LITE_INTERNAL_H
#define P4LITE_INTERNAL_H

#include <stdbool.h>
#include <stdio.h>

#include "fabric.h"
#include "histogram.h"

#define BUF_HEADROOM 256u
#define BUF_CLASSES 3u
#define MAX_PACKET 65536u
#define MAX_PORT 65535u
#define NO_POS UINT32_MAX

enum instance_type { IT_NORMAL = 0, IT_INGRESS_CLONE = 1, IT_EGRESS_CLONE = 2, IT_RECIRC = 4, IT_REPLICATION = 5, IT_RESUBMIT = 6 };

/* Bytes of a packet. Copies made by replication share one until a deparser needs to write. */
struct buf {
    struct buf *next_free;
    uint32_t refs;
    uint32_t capacity;
    uint32_t class;
    uint32_t reserved;
    uint8_t mem[];
};

enum timer_kind { TIMER_LINK, TIMER_PORT, TIMER_PACKET, TIMER_SOURCE, TIMER_PFC, TIMER_STORM, TIMER_CREDITS };

/* The place among events of one instant: by when they were planned, in order. `born` is twice the time of planning; what
 * a host planned between two events of the fabric is odd, and may be told later (`pf_send`). */
struct order {
    uint64_t born, seq;
};

struct timer {
    uint64_t time;
    uint32_t pos; /* in its list, NO_POS: not armed */
    uint16_t kind;
    uint16_t outbound; /* it belongs to `outbox`; changes only while it is not armed */
};

struct heap_entry {
    uint64_t time;
    struct order order;
    struct timer *timer;
};

/* A heap of timers. */
struct event_list {
    struct heap_entry *heap;
    uint32_t size, capacity;
};

/* `missing` bytes of a packet may be nowhere: they count in `len`, so in every queue, limit, time and counter, but `data`
 * goes on behind them with the last `tail` bytes, which hold the check of what is there (missing.c). */
struct packet {
    struct packet *next;
    struct buf *buf;
    uint8_t *data;
    uint32_t len;
    uint32_t missing;
    uint32_t tail;
    uint32_t truncate_to;
    struct p4_phv *phv;     /* while inside a switch */
    uint64_t time;          /* on a link: arrival; in a queue: when it was put there */
    struct order order;
    struct timer timer;     /* of packets that leave their link's order */
    struct linkdir *dir;    /* then: which one */
    struct port *at;        /* where it was resubmitted or recirculated */
    uint32_t epoch;
    uint32_t queue_bytes;   /* what it counts for in its queue */
    uint32_t ingress_port;
    uint16_t loops;         /* resubmitted, recirculated, cloned at egress so often */
    uint8_t qid;
    uint8_t credit_lane;
    bool credit_host, credit_held; /* the room is a host's; the packet has arrived where it is */
    uint32_t credit_blocks, credit_epoch;
    struct port *credit_port; /* whose receiver's room it has a credit for; NULL: none */
};

struct packet_list {
    struct packet *head, *tail;
};

enum peer_kind { PEER_NONE, PEER_SWITCH, PEER_EXTERNAL, PEER_INTERFACE, PEER_CPU };

/* One direction of a link: a wire, in order, with impairments. */
struct linkdir {
    struct timer timer;         /* arrival of the head of `wire` */
    struct packet_list wire;
    struct pf_link_settings set;
    struct port *owner;         /* whose counters losses go to */
    struct port *to;            /* the switch port it leads to; NULL: outside */
    uint64_t rng;
    uint64_t last_arrival;
    uint64_t free_at;           /* towards the switch only: the host's transmitter */
    uint64_t last_inject;
    uint64_t rate_rest;
    uint32_t epoch;             /* rises when the wire is cut */
    uint32_t aside;             /* packets on their way past the order of the wire */
    uint32_t ordinal, ordered;  /* which direction of the fabric's this is; frames of hosts that were put on it */
    bool up, impaired, ge_bad;
};

struct queue {
    struct packet_list list;
    uint64_t packets, bytes, limit_packets, limit_bytes;
    struct pf_queue_stats stats;
};

/* Priority flow control of one priority at one port. Its receiving side: `held` and the pause that it asks of the peer;
 * its sending side: the pause that the peer asks for. Times are PF_NO_TIME where there is none. */
struct pfc_class {
    struct pf_pfc_settings set;
    uint64_t held;              /* bytes that came in here and wait in the switch */
    uint64_t refresh_at;        /* when the peer is to be told again */
    uint64_t pausing_since;
    uint64_t paused_until, paused_since;
    uint64_t stuck_since;       /* paused, and something waits */
    uint64_t quiet_since;       /* no longer paused */
    struct pf_pfc_stats stats;  /* what it counts; the rest is filled in when it is read */
};

/* Of one port; bit i of the sets is priority i. */
struct pfc {
    struct timer timer;
    struct port *port;
    uint64_t source_mac;
    uint8_t enabled;
    uint8_t due;                /* the peer is to be told */
    uint8_t pausing;            /* the peer is to hold back */
    uint8_t paused;             /* the peer wants us to hold back */
    uint8_t storm;              /* the watchdog drops it */
    struct pfc_class classes[PF_MAX_PRIORITIES];
};

/* Credits of one priority at one port, in blocks of 64 bytes modulo 2^32 (credits.c). Sending: `sent` up to `limit`.
 * Receiving: of what the peer has `claimed` so much is `freed`. `host_*`: the receiving half of a host at this port. */
struct credit_class {
    uint64_t dscps;
    uint32_t buffer;
    uint32_t sent, limit, least;
    uint32_t freed, claimed, held, most;
    uint32_t host_freed, host_stuck;
    struct packet *stash;       /* has been through egress, which made it longer than the credit */
    uint64_t stalled_since;
    struct pf_credit_stats stats;
};

struct credits {
    struct timer timer;         /* all state is sent again */
    struct port *port;
    uint64_t source_mac;
    uint32_t epoch;             /* of the link: older packets count no more */
    uint8_t enabled;
    uint8_t due;                /* the peer is to be told */
    uint8_t stashed;
    struct credit_class classes[PF_MAX_PRIORITIES];
};

/* A periodic source of frames (benchmarks, background traffic). */
struct source {
    struct timer timer;
    struct source *next;
    struct port *port;
    struct buf **frames;
    uint32_t *lengths;
    uint32_t nframes, index;
    uint64_t left, interval_ns;
};

struct port {
    struct sw *sw;
    uint32_t number;
    uint8_t peer_kind;
    bool implicit, kicked, serving, collect;
    struct port *peer;
    struct port *patch;         /* what comes in here goes out there, past any program (pf_port_patch) */
    struct port *next_kicked;
    struct linkdir out, host_in;
    struct linkdir *in;         /* host_in, or the peer's out */
    struct queue queues[PF_MAX_PRIORITIES];
    uint64_t packets, bytes, limit_packets, limit_bytes;
    uint64_t free_at;           /* when the transmitter is free */
    struct timer timer;         /* armed while packets wait for free_at */
    struct pfc *pfc;            /* NULL: never had any */
    struct credits *credits;    /* likewise */
    struct timer storm;         /* the host's next pause frame (pause_storm_mac) */
    uint64_t storm_mac;
    struct device *device;
    struct source *sources;
    FILE *pcap;
    uint32_t pcap_snaplen;
    bool pcap_limited;
    struct pf_port_stats stats; /* without the queues and lag */
    struct histogram lag;
};

struct group {
    struct pf_replica *replicas;
    uint32_t count;
    bool present;
};

struct session {
    int64_t port, group;
    struct group own;
    uint32_t truncate_to;
    bool present;
};

struct sw {
    struct fabric *fabric;
    struct sw *next;
    struct pf_switch_config config;
    uint32_t state;
    const struct p4_program *program;
    struct p4_instance *instance;
    struct p4_phv **phvs; /* free ones */
    uint32_t phvs_free, phvs_made, phvs_capacity;
    struct phv_slab *slabs;
    uint64_t pool_bytes; /* in them */
    struct port **ports;
    uint32_t ports_size;
    struct port *cpu;
    struct group *groups; /* by id, groups_size of them */
    uint32_t groups_size;
    struct session *sessions;
    uint32_t sessions_size;
    uint32_t pfc_classes; /* with flow control, over all ports */
    struct pf_switch_stats stats;
};

struct notification_node {
    struct notification_node *next;
    struct pf_notification head;
};

struct fabric {
    struct p4_lock lock;
    bool real, running, captures_dirty;
    atomic_bool stop_requested;
    uint64_t origin;   /* CLOCK_MONOTONIC at creation (real clock) */
    uint64_t epoch_ns; /* what to add for the wall clock (captures) */
    uint64_t now, seq, events, seed, busy_poll_ns, round_ns, rng_count;
    uint32_t credit_epochs;
    uint64_t sending_at; /* the time of sending of the host's frame that is being taken (`pf_send`); PF_NO_TIME: none is */
    struct event_list list;
    struct event_list outbox; /* virtual clock: what arrives outside, which changes nothing inside */
    struct sw *switches, **switches_tail;
    struct port *kicked_head, *kicked_tail;
    struct packet_list again; /* resubmitted and recirculated */
    /* pools */
    struct packet *free_packets;
    struct buf *free_bufs[BUF_CLASSES];
    struct slab *slabs;
    uint64_t pool_bytes, pool_limit;
    /* deliveries */
    struct pf_delivery *deliveries;
    uint64_t ndeliveries, deliveries_capacity;
    uint8_t *delivered;
    uint64_t delivered_size, delivered_capacity;
    bool deliveries_taken; /* by the last run: the next delivery begins a new batch */
    uint64_t lookahead_ns;
    uint64_t foresight_ns; /* what is put on a wire to the outside from now on arrives so much later at the earliest */
    uint64_t known;        /* what arrives outside up to then has been delivered */
    /* real clock */
    pthread_t thread;
    pthread_barrier_t started;
    int start_errno; /* why the thread could not have its priority */
    bool realtime;
    int epoll_fd, wake_fd, netlink_fd;
    struct device *devices;
    struct histogram lag, busy;
    uint64_t wall;          /* the clock when it was last read */
    uint64_t lag_since, lag_cpu_since, lag_events_since;
    clockid_t cpu_clock;
    /* observation */
    FILE *trace;
    bool trace_limited;
    uint64_t files_room; /* bytes that limited files may still take */
    /* notifications, under their own lock */
    pthread_mutex_t notify_mutex;
    struct notification_node *notify_head, *notify_tail;
    uint64_t notify_count, notify_bytes, notify_lost;
    int notify_fd;
};

/* pool.c */
struct packet *packet_new(struct fabric *f, uint32_t capacity); /* data at BUF_HEADROOM; NULL: no memory */
struct packet *packet_share(struct fabric *f, const struct packet *p);
void packet_free(struct fabric *f, struct packet *p);
void packet_drop_phv(struct sw *s, struct packet *p);
bool packet_make_room(struct fabric *f, struct packet *p, uint32_t payload_offset, uint32_t headers);
void packet_unshare(struct fabric *f, struct packet *p);
bool packet_replace(struct fabric *f, struct packet *p, uint32_t bytes);
struct p4_phv *phv_get(struct sw *s);
void phv_put(struct sw *s, struct p4_phv *phv);
void phv_pool_clear(struct sw *s);
void pool_destroy(struct fabric *f);

/* missing.c */
void packet_corrupt(struct packet *p, uint64_t bit);
void packet_truncate(struct packet *p, uint32_t len);
bool packet_reveal(struct fabric *f, struct packet *p);

/* events.c */
void timer_arm(struct fabric *f, struct timer *t, uint64_t time, struct order order);
void timer_cancel(struct fabric *f, struct timer *t);
struct order next_order(struct fabric *f);
struct event_list *next_events(struct fabric *f);
uint64_t next_time(struct fabric *f);
void run_due(struct fabric *f, uint64_t until);
void run_step(struct fabric *f);
void foresee(struct fabric *f, uint64_t until);
void drain(struct fabric *f);

/* link.c */
void linkdir_init(struct fabric *f, struct linkdir *d, struct port *owner, struct port *to);
void linkdir_set(struct linkdir *d, const struct pf_link_settings *set);
void linkdir_cut(struct fabric *f, struct linkdir *d, enum pf_port_drop why);
uint64_t linkdir_serialise(struct linkdir *d, uint64_t *rest, uint32_t len);
void linkdir_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t leaves);
void linkdir_send_aside(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t leaves);
uint64_t linkdir_carries(const struct linkdir *d); /* packets now */
void linkdir_arrived(struct fabric *f, struct linkdir *d, uint64_t at);
void linkdir_arrived_late(struct fabric *f, struct packet *p, uint64_t at);
uint64_t linkdir_host_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t at);
void source_fire(struct fabric *f, struct source *s);
void source_free(struct fabric *f, struct source *s);

/* api_port.c */
void lookahead_update(struct fabric *f);
int port_inject(struct fabric *f, struct port *q, const uint8_t *data, uint32_t len, uint32_t missing, uint64_t at_ns,
                uint64_t *free_at);

/* traffic_manager.c */
void port_enqueue(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
void port_serve(struct fabric *f, struct port *q, uint64_t start);
void port_rate_changed(struct fabric *f, struct port *q, uint64_t old_rate);
void port_kick(struct fabric *f, struct port *q);
void port_flush(struct fabric *f, struct port *q);

/* pfc.c */
bool pfc_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
void pfc_release(struct fabric *f, struct sw *s, const struct packet *p);
bool pfc_receive(struct fabric *f, struct port *in, struct packet *p);
struct packet *pfc_frame(struct fabric *f, struct port *q);
void pfc_fire(struct fabric *f, struct pfc *pfc);
void pfc_link_lost(struct fabric *f, struct port *q);
void pfc_off(struct fabric *f, struct port *q);
void pfc_free(struct fabric *f, struct port *q);
void pfc_reset_stats(const struct fabric *f, struct port *q);
void storm_update(struct fabric *f, struct port *q);
void storm_fire(struct fabric *f, struct port *q);

/* credits.c */
bool credits_short(const struct fabric *f, struct port *q, uint32_t priority, const struct packet *head);
bool credits_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
struct packet *credits_take(struct fabric *f, struct port *q, struct packet *p, uint32_t priority);
struct packet *credits_unstash(struct port *q, uint32_t *priority);
void credits_host_sent(struct port *in, struct packet *p);
void credits_host_recovers(struct fabric *f, struct port *q);
void credits_arrived(struct port *in, struct packet *p);
void credits_release(struct fabric *f, struct packet *p);
bool credits_receive(struct fabric *f, struct port *in, struct packet *p);
struct packet *credits_frame(struct fabric *f, struct port *q);
uint64_t credits_frame_time(struct port *q);
void credits_announce(struct fabric *f, struct port *q);
void credits_fire(struct fabric *f, struct credits *cr);
void credits_flush(struct fabric *f, struct port *q);
void credits_reset(struct fabric *f, struct port *q);
void credits_free(struct fabric *f, struct port *q);
void credits_reset_stats(const struct fabric *f, struct port *q);

/* forwarding.c */
void target_receive(struct fabric *f, struct port *in, struct packet *p);
void target_again(struct fabric *f, struct packet *p);
struct packet *target_egress(struct fabric *f, struct port *q, struct packet *p);
struct port *switch_port(struct sw *s, uint32_t number);

/* observe.c */
uint32_t crc32_of(const uint8_t *data, uint32_t len);
void trace_packet(struct fabric *f, const char *what, const struct port *q, const struct packet *p);
void pcap_packet(struct fabric *f, struct port *q, const struct packet *p, uint32_t outbound);
int pcap_open(struct port *q, const char *path, uint32_t snaplen, bool limited);
void pcap_close(struct port *q);
void pcap_flush(struct fabric *f);
void notify(struct fabric *f, uint32_t kind, uint32_t device_id, uint32_t ident, uint32_t up, const uint8_t *data,
            uint64_t len);
bool deliver(struct fabric *f, const struct port *q, struct packet *p, uint64_t at);

/* device.c */
void device_send(struct fabric *f, struct port *q, struct packet *p);
void device_close(struct fabric *f, struct port *q);
bool devices_flush(struct fabric *f);
void device_collect_drops(struct port *q);
bool device_is_up(const struct port *q);
void device_receive(struct fabric *f, struct device *d);
bool device_has_input(const struct device *d);
struct device *device_next(const struct device *d);
void device_link_event(struct fabric *f);
int device_loop_fds(struct fabric *f);
void device_loop_close(struct fabric *f);


/* clock.c */
uint64_t clock_read(const struct fabric *f);
int run_locked(struct fabric *f, uint64_t until_ns, uint32_t stop_on_delivery, uint64_t foresee_ns, struct pf_batch *out);
void settle(struct fabric *f); /* after a change from outside: bring the clock up to date, do what is left */

static inline uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static inline bool chance(uint64_t *state, double probability)
{
    return (double)(random_next(state) >> 11) * 0x1p-53 < probability;
}

/* Bytes of a packet that are stored, and those of them that are before the missing ones: all where none is missing. */
static inline uint32_t packet_stored(const struct packet *p)
{
    return p->len - p->missing;
}

static inline uint32_t packet_head(const struct packet *p)
{
    return p->len - p->missing - p->tail;
}

static inline void list_push(struct packet_list *l, struct packet *p)
{
    p->next = NULL;
    if (l->tail)
        l->tail->next = p;
    else
        l->head = p;
    l->tail = p;
}

static inline struct packet *list_pop(struct packet_list *l)
{
    struct packet *p = l->head;
    if (p) {
        l->head = p->next;
        if (!l->head)
            l->tail = NULL;
    }
    return p;
}

/* What the port has to say to its peer, and what waits outside its queues. */
static inline bool port_has_more(const struct port *q)
{
    return (q->pfc && q->pfc->due) || (q->credits && (q->credits->due | q->credits->stashed));
}

static inline void port_drop(struct fabric *f, struct port *q, struct packet *p, enum pf_port_drop why)
{
    q->stats.drops[why]++;
    if (f->trace) {
        static const char *const names[] = {PF_PORT_DROP_REASONS(PF_TRACED_DROP)};
        trace_packet(f, names[why], q, p);
    }
    packet_drop_phv(q->sw, p);
    packet_free(f, p);
}

#endif
