/* The data structures of the fabric core, and what all its parts stand on: packets and their pools, timers, and what the
 * outside sees of packets. Everything here is used under the fabric's lock.
 *
 * The files point one way: api.c uses run.c, that device.c, then switch.c, flow.c, link.c and base.c. What lies above the
 * links is reached from there by `fabric.receive` and `fabric.leave`, and what waits for a time by its timer. */
#ifndef P4LITE_BASE_H
#define P4LITE_BASE_H

#include <stdbool.h>
#include <stdio.h>
#include <time.h>

#include "fabric.h"
#include "histogram.h"

struct timer;
struct packet;

#define BUF_HEADROOM 256u
#define BUF_CLASSES 4u
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

/* The place among events of one instant: by when they were planned, in order. `born` is twice the time of planning; what
 * a host planned between two events of the fabric is odd, and may be told later (`pf_send`). */
struct order {
    uint64_t born, seq;
};

struct timer {
    uint64_t time;
    void (*due)(struct fabric *f, struct timer *t); /* to be called then; it cancels the timer, or arms it again */
    uint32_t pos;      /* in its list, NO_POS: not armed */
    uint32_t outbound; /* it belongs to `outbox`; changes only while it is not armed */
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

/* Bytes of its sender's that packets refer to, until none does (pf_returned). Each is in the list of all that were made. */
struct borrowed {
    struct borrowed *next_free, *next_made;
    void *owner; /* NULL: free */
    uint32_t refs;
};

/* `missing` bytes of a packet may not be stored: they count in `len`, so in every queue, limit, time and counter, but `data`
 * goes on behind them with the last `tail` bytes. They are nowhere, and the tail holds the check of what is there (base.c),
 * or they are at `middle`, which is borrowed. */
struct packet {
    struct packet *next;
    struct buf *buf;
    uint8_t *data;
    uint32_t len;
    uint32_t missing;
    uint32_t tail;
    struct borrowed *borrowed; /* NULL: nothing is */
    const uint8_t *middle;
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
    void (*ended)(struct fabric *f, struct packet *p); /* is called when it is freed, unless NULL */
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

/* Credits of one priority at one port, in blocks of 64 bytes modulo 2^32 (flow.c). Sending: `sent` up to `limit`.
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
    uint8_t waiting;            /* bit i: queue i is not empty */
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
    uint32_t pcap_flags; /* PF_CAPTURE_... */
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
    void (*receive)(struct fabric *f, struct port *in, struct packet *p); /* a packet that has come over a link */
    void (*leave)(struct fabric *f, struct port *q, struct packet *p);    /* one that goes out by an interface */
    struct event_list list;
    struct event_list outbox; /* virtual clock: what arrives outside, which changes nothing inside */
    struct sw *switches, **switches_tail;
    struct port *kicked_head, *kicked_tail;
    struct packet_list again; /* resubmitted and recirculated */
    /* pools */
    struct packet *free_packets;
    struct buf *free_bufs[BUF_CLASSES];
    struct borrowed *free_borrowed, *made_borrowed, *returned;
    struct slab *slabs;
    uint64_t pool_bytes, pool_limit;
    /* deliveries */
    struct pf_delivery *deliveries;
    uint64_t ndeliveries, deliveries_capacity;
    struct packet_list delivered; /* theirs */
    uint64_t delivered_bytes, delivered_most; /* what these have of the pools, and had at most */
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
    struct device *opened; /* interfaces that no port has taken yet */
    bool tunnels; /* there is one */
    struct outgoing *outgoing; /* what interfaces send; NULL: there has been none */
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

/* Hold the fabric's lock to the end of the block. */
static inline void unlock_at_end(struct fabric **f)
{
    pf_unlock(*f);
}
#define LOCKED(f) \
    __attribute__((cleanup(unlock_at_end))) struct fabric *locked_fabric = (f); \
    pf_lock(locked_fabric)

/* Packets. */
struct packet *packet_new(struct fabric *f, uint32_t capacity); /* data at BUF_HEADROOM; NULL: no memory */
struct packet *packet_share(struct fabric *f, const struct packet *p);
void packet_free(struct fabric *f, struct packet *p);
bool packet_borrow(struct fabric *f, struct packet *p, void *owner);
void packet_drop_phv(struct sw *s, struct packet *p);
bool packet_make_room(struct fabric *f, struct packet *p, uint32_t payload_offset, uint32_t headers);
void packet_unshare(struct fabric *f, struct packet *p);
void packet_corrupt(struct packet *p, uint64_t bit);
void packet_truncate(struct fabric *f, struct packet *p, uint32_t len);
bool packet_reveal(struct fabric *f, struct packet *p);
struct p4_phv *phv_get(struct sw *s);
void phv_put(struct sw *s, struct p4_phv *phv);
void phv_pool_clear(struct sw *s);
void pool_destroy(struct fabric *f);

/* Time. */
uint64_t clock_ns(clockid_t id);
uint64_t clock_read(const struct fabric *f);
void timer_arm(struct fabric *f, struct timer *t, uint64_t time, struct order order);
void timer_cancel(struct fabric *f, struct timer *t);
struct order next_order(struct fabric *f);
struct event_list *next_events(struct fabric *f);
uint64_t next_time(struct fabric *f);

/* Serve a port once the event at hand is done. */
void port_kick(struct fabric *f, struct port *q);

/* What the outside sees. */
uint32_t crc32_of(const uint8_t *data, uint32_t len);
void trace_packet(struct fabric *f, const char *what, const struct port *q, const struct packet *p);
void pcap_packet(struct fabric *f, struct port *q, const struct packet *p, uint32_t outbound);
int pcap_open(struct port *q, const char *path, const char *label, uint32_t snaplen, uint32_t flags);
void pcap_close(struct port *q);
void pcap_flush(struct fabric *f);
void notify(struct fabric *f, uint32_t kind, uint32_t device_id, uint32_t ident, uint32_t up, const uint8_t *data,
            uint64_t len);
bool deliver(struct fabric *f, const struct port *q, struct packet *p, uint64_t at);
void deliveries_clear(struct fabric *f);

#define CONTAINER(type, member, at) ((type *)(void *)((char *)(at) - offsetof(type, member)))

/* Each port of a switch. */
#define EACH_PORT(s, q) \
    for (uint32_t each_##q = 0; each_##q < (s)->ports_size; each_##q++) \
        for (struct port *q = (s)->ports[each_##q]; q; q = NULL)

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

/* The next packet of a queue, which need not have one. */
static inline struct packet *queue_pop(struct port *q, uint32_t i)
{
    struct queue *queue = &q->queues[i];
    struct packet *p = list_pop(&queue->list);
    if (p) {
        queue->packets--;
        queue->bytes -= p->queue_bytes;
        q->packets--;
        q->bytes -= p->queue_bytes;
    }
    if (!queue->list.head)
        q->waiting &= (uint8_t)~(1u << i);
    return p;
}

/* What the port has to say to its peer, and what waits outside its queues. */
static inline bool port_has_more(const struct port *q)
{
    return (q->pfc && q->pfc->due) || (q->credits && (q->credits->due | q->credits->stashed));
}

/* Write a packet to the trace and to the port's capture, where there are any. */
static inline void observe(struct fabric *f, const char *what, struct port *q, const struct packet *p, uint32_t outbound)
{
    if (f->trace)
        trace_packet(f, what, q, p);
    if (q->pcap)
        pcap_packet(f, q, p, outbound);
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
