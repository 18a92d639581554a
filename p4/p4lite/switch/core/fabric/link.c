/* Links: serialisation, delay and impairments of one direction. A direction keeps its packets in order in
 * `wire` and only the first is in the event list; packets that `reorder` delays travel on their own. */
#include "link.h"

static void hand_over(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t at)
{
    if (d->to) {
        f->receive(f, d->to, p);
        return;
    }
    struct port *q = d->owner;
    if (q->peer_kind == PEER_INTERFACE) {
        f->leave(f, q, p);
        return;
    }
    if (f->trace)
        trace_packet(f, "deliver", q, p);
    if (!q->collect)
        packet_free(f, p);
    else if (!deliver(f, q, p, at))
        port_drop(f, q, p, PF_D_MEMORY);
}

/* The first packet of the wire has arrived; the timer moves on to the next. */
static void link_due(struct fabric *f, struct timer *t)
{
    struct linkdir *d = CONTAINER(struct linkdir, timer, t);
    struct packet *p = list_pop(&d->wire);
    uint64_t at = t->time;
    if (d->wire.head)
        timer_arm(f, t, d->wire.head->time, d->wire.head->order);
    else
        timer_cancel(f, t);
    hand_over(f, d, p, at);
}

/* So has a packet past its order. */
static void late_due(struct fabric *f, struct timer *t)
{
    struct packet *p = CONTAINER(struct packet, timer, t);
    struct linkdir *d = p->dir;
    timer_cancel(f, t);
    p->dir = NULL;
    d->aside--;
    if (p->epoch != d->epoch)
        port_drop(f, d->owner, p, PF_D_LINK_DOWN);
    else
        hand_over(f, d, p, t->time);
}

void linkdir_init(struct fabric *f, struct linkdir *d, struct port *owner, struct port *to)
{
    memset(d, 0, sizeof *d);
    d->timer.pos = NO_POS;
    d->timer.due = link_due;
    d->owner = owner;
    d->to = to;
    d->up = true;
    d->ordinal = (uint32_t)++f->rng_count;
    uint64_t state = f->seed + f->rng_count * UINT64_C(0xd1342543de82ef95);
    d->rng = random_next(&state);
}

void linkdir_set(struct linkdir *d, const struct pf_link_settings *set)
{
    if (set->rate_bps != d->set.rate_bps)
        d->rate_rest = 0;
    d->set = *set;
    d->impaired = set->loss > 0 || set->ge_to_bad > 0 || set->ge_loss_good > 0 || set->corrupt > 0 ||
                  set->duplicate > 0 || set->reorder > 0 || set->blackhole;
    if (set->ge_to_bad <= 0)
        d->ge_bad = false;
}

/* What is on the wire is lost. */
void linkdir_cut(struct fabric *f, struct linkdir *d, enum pf_port_drop why)
{
    struct packet *p;
    timer_cancel(f, &d->timer);
    d->epoch++;
    d->last_arrival = 0;
    while ((p = list_pop(&d->wire)))
        port_drop(f, d->owner, p, why);
}

/* Time of `len` bytes at the link's rate; fractions of a nanosecond are carried over to the next packet. */
uint64_t linkdir_serialise(struct linkdir *d, uint64_t *rest, uint32_t len)
{
    uint64_t rate = d->set.rate_bps;
    if (rate == 0)
        return 0;
    uint64_t bits = ((uint64_t)len + d->set.overhead_bytes) * 8;
    unsigned __int128 scaled = (unsigned __int128)bits * 1000000000u + *rest;
    uint64_t word = (uint64_t)scaled;
    if (word == scaled) { /* nearly always; the division of a machine word is much faster */
        *rest = word % rate;
        return word / rate;
    }
    *rest = (uint64_t)(scaled % rate);
    return (uint64_t)(scaled / rate);
}

static bool outbound(const struct fabric *f, const struct linkdir *d)
{
    return !d->to && !f->real;
}

/* The order of an arrival among others of its instant. That of a frame of hosts (pf_send) depends only on when and from
 * where it was sent, so that it is the same however many frames the fabric is given at once, and in whichever order. It
 * follows what the fabric did at the time of sending. */
static struct order order_on_wire(struct fabric *f, struct linkdir *d)
{
    if (f->sending_at == PF_NO_TIME)
        return next_order(f);
    return (struct order){2 * f->sending_at + 1, (uint64_t)d->ordinal << 32 | d->ordered++};
}

static void put_on_wire(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t arrival)
{
    if (arrival < d->last_arrival)
        arrival = d->last_arrival; /* the delay was shortened: a wire keeps its order */
    d->last_arrival = arrival;
    if (!d->to && !d->wire.head && arrival <= f->now) {
        hand_over(f, d, p, f->now);
        return;
    }
    p->time = arrival;
    p->order = order_on_wire(f, d);
    bool first = !d->wire.head;
    list_push(&d->wire, p);
    if (first) {
        d->timer.outbound = outbound(f, d);
        timer_arm(f, &d->timer, p->time, p->order);
    }
}

/* Losses that the chain and the plain probability make; both are drawn for every packet. */
static bool lost(struct linkdir *d, enum pf_port_drop *why)
{
    const struct pf_link_settings *set = &d->set;
    bool burst = false;
    if (set->ge_to_bad > 0 || set->ge_loss_good > 0) {
        if (chance(&d->rng, d->ge_bad ? set->ge_to_good : set->ge_to_bad))
            d->ge_bad = !d->ge_bad;
        burst = chance(&d->rng, d->ge_bad ? set->ge_loss_bad : set->ge_loss_good);
    }
    bool plain = set->loss > 0 && chance(&d->rng, set->loss);
    *why = burst ? PF_D_BURST_LOSS : PF_D_LOSS;
    return burst || plain;
}

static void put_aside(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t arrival)
{
    d->aside++;
    p->dir = d;
    p->epoch = d->epoch;
    p->next = NULL;
    p->timer.due = late_due;
    p->timer.outbound = outbound(f, d);
    timer_arm(f, &p->timer, arrival, order_on_wire(f, d));
}

/* The packet's last bit leaves the sender at `leaves`. `aside`: past the order of the wire, for what the fabric sends in the
 * name of a host whose packets it may yet be told of. */
void linkdir_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t leaves, bool aside)
{
    struct pf_port_stats *stats = &d->owner->stats;
    if (!d->up) {
        port_drop(f, d->owner, p, PF_D_LINK_DOWN);
        return;
    }
    uint64_t arrival = leaves + d->set.delay_ns;
    if (!d->impaired) {
        if (aside)
            put_aside(f, d, p, arrival);
        else
            put_on_wire(f, d, p, arrival);
        return;
    }
    enum pf_port_drop why;
    if (d->set.blackhole) {
        port_drop(f, d->owner, p, PF_D_BLACKHOLE);
        return;
    }
    if (lost(d, &why)) {
        port_drop(f, d->owner, p, why);
        return;
    }
    if (d->set.corrupt > 0 && chance(&d->rng, d->set.corrupt) && p->len) {
        uint64_t bit = random_next(&d->rng) % ((uint64_t)p->len * 8);
        if (p->borrowed && !packet_reveal(f, p)) {
            port_drop(f, d->owner, p, PF_D_MEMORY);
            return;
        }
        packet_unshare(f, p);
        if (p->buf->refs == 1)
            packet_corrupt(p, bit);
        stats->corrupted++;
    }
    struct packet *twin = NULL;
    if (d->set.duplicate > 0 && chance(&d->rng, d->set.duplicate) && (twin = packet_share(f, p)))
        stats->duplicated++;
    if (d->set.reorder > 0 && chance(&d->rng, d->set.reorder)) {
        stats->reordered++;
        put_aside(f, d, p, arrival + d->set.reorder_extra_ns);
    } else if (aside) {
        put_aside(f, d, p, arrival);
    } else {
        put_on_wire(f, d, p, arrival);
    }
    if (twin)
        put_on_wire(f, d, twin, arrival);
}

uint64_t linkdir_carries(const struct linkdir *d)
{
    uint64_t packets = d->aside;
    for (const struct packet *p = d->wire.head; p; p = p->next)
        packets++;
    return packets;
}

/* A host's transmitter: first in, first out. Returns when it is free again, PF_NO_TIME if its queue was full. */
uint64_t linkdir_host_send(struct fabric *f, struct linkdir *d, struct packet *p, uint64_t at)
{
    uint64_t start = d->free_at > at ? d->free_at : at;
    if (d->set.rate_bps && d->set.host_queue_bytes) {
        unsigned __int128 waiting = (unsigned __int128)(start - at) * d->set.rate_bps / 8000000000u;
        if (waiting + p->len > d->set.host_queue_bytes) {
            port_drop(f, d->owner, p, PF_D_HOST_QUEUE_FULL);
            return PF_NO_TIME;
        }
    }
    d->free_at = start + linkdir_serialise(d, &d->rate_rest, p->len);
    linkdir_send(f, d, p, d->free_at, false);
    return d->free_at;
}

/* How far the virtual clock may run past a delivery: no host's answer reaches a switch sooner. And how long before
 * it arrives is known what reaches a host: nothing, where its arrival tells the switch of credits. */
void lookahead_update(struct fabric *f)
{
    uint64_t least = PF_NO_TIME, ahead = PF_NO_TIME;
    for (struct sw *s = f->switches; s; s = s->next)
        EACH_PORT(s, q) {
            if (q->peer_kind != PEER_EXTERNAL)
                continue;
            uint64_t out = q->credits ? 0 : q->out.set.delay_ns;
            least = q->host_in.set.delay_ns < least ? q->host_in.set.delay_ns : least;
            ahead = out < ahead ? out : ahead;
        }
    f->lookahead_ns = least;
    f->foresight_ns = ahead == PF_NO_TIME ? 0 : ahead;
}
