/* The functions of fabric.h that deal with one port. */
#include <stdlib.h>

#include "internal.h"

/* How far the virtual clock may run past a delivery: no host's answer reaches a switch sooner. And how long before
 * it arrives is known what reaches a host: nothing, where its arrival tells the switch of credits. */
void lookahead_update(struct fabric *f)
{
    uint64_t least = PF_NO_TIME, ahead = PF_NO_TIME;
    for (struct sw *s = f->switches; s; s = s->next)
        for (uint32_t i = 0; i < s->ports_size; i++) {
            const struct port *q = s->ports[i];
            if (!q || q->peer_kind != PEER_EXTERNAL)
                continue;
            uint64_t out = q->credits ? 0 : q->out.set.delay_ns;
            least = q->host_in.set.delay_ns < least ? q->host_in.set.delay_ns : least;
            ahead = out < ahead ? out : ahead;
        }
    f->lookahead_ns = least;
    f->foresight_ns = ahead == PF_NO_TIME ? 0 : ahead;
}

int pf_port_add(struct sw *s, uint32_t number, struct port **out)
{
    struct fabric *f = s->fabric;
    int result = PF_E_RANGE;
    if (number > MAX_PORT || number == s->config.drop_port)
        return PF_E_RANGE;
    pf_lock(f);
    struct port *q = switch_port(s, number);
    if (!q) {
        result = PF_E_MEMORY;
    } else if (!q->implicit || q->peer_kind == PEER_CPU) {
        result = PF_E_EXISTS;
    } else {
        q->implicit = false;
        q->peer_kind = PEER_EXTERNAL;
        q->collect = true;
        lookahead_update(f);
        *out = q;
        result = PF_OK;
    }
    pf_unlock(f);
    return result;
}

static void unlink_one(struct fabric *f, struct port *q)
{
    linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
    q->out.to = NULL;
    q->peer = NULL;
    q->in = &q->host_in;
    q->peer_kind = PEER_EXTERNAL;
    storm_update(f, q);
    credits_reset(f, q);
}

int pf_port_unlink(struct port *a)
{
    struct fabric *f = a->sw->fabric;
    pf_lock(f);
    struct port *b = a->peer;
    if (b) {
        unlink_one(f, a);
        unlink_one(f, b);
        lookahead_update(f);
    }
    pf_unlock(f);
    return b ? PF_OK : PF_E_MISSING;
}

/* Takes a patch away, of which this is the other end. */
static void unpatch(struct fabric *f, struct port *q)
{
    port_flush(f, q);
    q->patch->patch = NULL;
    q->patch = NULL;
}

/* The structure stays, like that of a port that was not added, since packets inside the switch may still refer to it. */
int pf_port_remove(struct port *q)
{
    struct fabric *f = q->sw->fabric;
    pf_lock(f);
    pf_port_unlink(q);
    device_close(f, q);
    pcap_close(q);
    while (q->sources) {
        struct source *next = q->sources->next;
        source_free(f, q->sources);
        q->sources = next;
    }
    if (q->patch)
        unpatch(f, q->patch);
    pfc_free(f, q);
    credits_free(f, q);
    port_flush(f, q);
    linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
    linkdir_cut(f, &q->host_in, PF_D_LINK_DOWN);
    static const struct pf_link_settings plain;
    linkdir_set(&q->out, &plain);
    linkdir_set(&q->host_in, &plain);
    q->out.up = q->host_in.up = true;
    q->implicit = true;
    q->peer_kind = PEER_NONE;
    storm_update(f, q);
    lookahead_update(f);
    pf_unlock(f);
    return PF_OK;
}

int pf_port_link(struct port *a, struct port *b)
{
    struct fabric *f = a->sw->fabric;
    if (a == b || b->sw->fabric != f)
        return PF_E_RANGE;
    pf_lock(f);
    int result = PF_E_BUSY;
    if (a->peer_kind == PEER_EXTERNAL && b->peer_kind == PEER_EXTERNAL) {
        struct port *ends[2] = {a, b};
        for (int i = 0; i < 2; i++) {
            struct port *q = ends[i], *peer = ends[1 - i];
            linkdir_cut(f, &q->host_in, PF_D_LINK_DOWN);
            linkdir_cut(f, &q->out, PF_D_LINK_DOWN);
            q->peer_kind = PEER_SWITCH;
            q->peer = peer;
            q->out.to = peer;
            q->in = &peer->out;
            storm_update(f, q);
        }
        credits_reset(f, a);
        credits_reset(f, b);
        lookahead_update(f);
        result = PF_OK;
    }
    pf_unlock(f);
    return result;
}

int pf_port_patch(struct port *a, struct port *b)
{
    struct fabric *f = a->sw->fabric;
    if (a == b || a->sw != b->sw)
        return PF_E_RANGE;
    pf_lock(f);
    int result = PF_E_BUSY;
    if (!a->patch && !b->patch) {
        port_flush(f, a); /* a queue holds either packets of a program or patched ones */
        port_flush(f, b);
        a->patch = b;
        b->patch = a;
        result = PF_OK;
    }
    pf_unlock(f);
    return result;
}

static struct linkdir *direction(struct port *q, uint32_t outgoing)
{
    return outgoing ? &q->out : q->in;
}

int pf_port_settings(struct port *q, uint32_t outgoing, const struct pf_link_settings *settings)
{
    struct fabric *f = q->sw->fabric;
    pf_lock(f);
    settle(f);
    struct linkdir *d = direction(q, outgoing);
    uint64_t old_rate = d->set.rate_bps;
    linkdir_set(d, settings);
    if (d == &d->owner->out)
        port_rate_changed(f, d->owner, old_rate);
    else if (settings->rate_bps == 0 || settings->rate_bps > old_rate)
        d->free_at = d->free_at < f->now ? d->free_at : f->now;
    storm_update(f, q);
    lookahead_update(f);
    settle(f);
    pf_unlock(f);
    return PF_OK;
}

int pf_port_up(struct port *q, uint32_t outgoing, uint32_t up)
{
    struct fabric *f = q->sw->fabric;
    struct linkdir *d = direction(q, outgoing);
    pf_lock(f);
    settle(f);
    if (d->up && !up) {
        linkdir_cut(f, d, PF_D_LINK_DOWN);
        pfc_link_lost(f, d->owner);
        if (d->owner->peer)
            pfc_link_lost(f, d->owner->peer);
    }
    d->up = up;
    storm_update(f, q);
    credits_announce(f, d->owner);
    if (d->owner->peer)
        credits_announce(f, d->owner->peer);
    settle(f);
    pf_unlock(f);
    return PF_OK;
}

int pf_port_is_up(struct port *q, uint32_t outgoing)
{
    pf_lock(q->sw->fabric);
    int up = direction(q, outgoing)->up && device_is_up(q);
    pf_unlock(q->sw->fabric);
    return up;
}

int pf_port_queue(struct port *q, int32_t priority, uint64_t packets, uint64_t bytes)
{
    if (priority < PF_QUEUE_BUFFER || priority >= (int32_t)q->sw->config.priority_queues)
        return PF_E_RANGE;
    pf_lock(q->sw->fabric);
    if (priority == PF_QUEUE_BUFFER) {
        q->limit_packets = packets;
        q->limit_bytes = bytes;
    }
    for (int32_t i = 0; i < (int32_t)PF_MAX_PRIORITIES; i++)
        if (priority == PF_QUEUE_EACH || priority == i) {
            q->queues[i].limit_packets = packets;
            q->queues[i].limit_bytes = bytes;
        }
    pf_unlock(q->sw->fabric);
    return PF_OK;
}

int pf_port_stats(struct port *q, struct pf_port_stats *out, uint32_t reset)
{
    pf_lock(q->sw->fabric);
    device_collect_drops(q);
    *out = q->stats;
    out->on_wire = linkdir_carries(&q->out) + linkdir_carries(&q->host_in);
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct queue *queue = &q->queues[i];
        out->queues[i] = queue->stats;
        out->queues[i].depth_packets = queue->packets;
        out->queues[i].depth_bytes = queue->bytes;
        if (reset) {
            memset(&queue->stats, 0, sizeof queue->stats);
            queue->stats.max_packets = queue->packets;
            queue->stats.max_bytes = queue->bytes;
        }
    }
    out->service_lag = histogram_read(&q->lag);
    if (reset) {
        memset(&q->stats, 0, sizeof q->stats);
        memset(&q->lag, 0, sizeof q->lag);
        pfc_reset_stats(q->sw->fabric, q);
        credits_reset_stats(q->sw->fabric, q);
    }
    pf_unlock(q->sw->fabric);
    return PF_OK;
}

int pf_port_samples(struct fabric *f, struct port *const *ports, uint32_t count, uint32_t priority, uint64_t reasons,
                    struct pf_port_sample *out)
{
    if (priority >= PF_MAX_PRIORITIES)
        return PF_E_RANGE;
    pf_lock(f);
    for (uint32_t i = 0; i < count; i++) {
        struct port *q = ports[i];
        const struct queue *queue = &q->queues[priority];
        device_collect_drops(q);
        uint64_t all = 0, some = 0;
        for (uint32_t reason = 0; reason < PF_PORT_DROPS; reason++) {
            all += q->stats.drops[reason];
            some += reasons >> reason & 1 ? q->stats.drops[reason] : 0;
        }
        uint64_t up = device_is_up(q) ? (direction(q, 1)->up ? 1u : 0u) | (direction(q, 0)->up ? 2u : 0u) : 0u;
        uint64_t controls = (q->pfc ? 1u : 0u) | (q->credits ? 2u : 0u);
        out[i] = (struct pf_port_sample){q->stats.tx_bytes, queue->bytes, queue->stats.max_bytes, all, some,
                                         q->stats.storm_frames, controls, q->stats.rx_bytes, up};
    }
    pf_unlock(f);
    return PF_OK;
}

int pf_port_capture(struct port *q, const char *path, uint32_t snaplen, uint32_t limited)
{
    int result = PF_OK;
    pf_lock(q->sw->fabric);
    if (path)
        result = pcap_open(q, path, snaplen, limited != 0);
    else
        pcap_close(q);
    pf_unlock(q->sw->fabric);
    return result;
}

int pf_port_collect(struct port *q, uint32_t collect)
{
    pf_lock(q->sw->fabric);
    q->collect = collect;
    pf_unlock(q->sw->fabric);
    return PF_OK;
}

int port_inject(struct fabric *f, struct port *q, const uint8_t *data, uint32_t len, uint32_t missing, uint64_t at_ns,
                uint64_t *free_at)
{
    struct linkdir *d = &q->host_in;
    if (len > MAX_PACKET || (missing && (uint64_t)missing + PF_LEAST_STORED > len))
        return PF_E_RANGE;
    if (q->peer_kind != PEER_EXTERNAL)
        return PF_E_BUSY;
    if (!f->real && (at_ns < d->last_inject || at_ns + d->set.delay_ns < f->now))
        return PF_E_PAST;
    uint32_t stored = len - missing;
    struct packet *p = packet_new(f, stored);
    if (!p)
        return PF_E_MEMORY;
    d->last_inject = at_ns;
    memcpy(p->data, data, stored);
    p->len = len;
    p->missing = missing;
    p->tail = missing ? PF_TAIL_BYTES : 0;
    *free_at = linkdir_host_send(f, d, p, at_ns);
    return PF_OK;
}

int pf_port_inject(struct port *q, const uint8_t *data, uint32_t len, uint64_t at_ns, uint64_t *free_at)
{
    struct fabric *f = q->sw->fabric;
    uint64_t free;
    pf_lock(f);
    int result = port_inject(f, q, data, len, 0, at_ns, &free);
    if (result == PF_OK && free_at)
        *free_at = free;
    if (result == PF_OK && f->real)
        settle(f); /* wakes the loop */
    pf_unlock(f);
    return result;
}

int pf_port_generate(struct port *q, const uint8_t *frames, const uint32_t *lengths, uint32_t nframes, uint64_t count,
                     uint64_t start_ns, uint64_t interval_ns)
{
    struct fabric *f = q->sw->fabric;
    if (!nframes || !count)
        return PF_E_RANGE;
    struct source *s = calloc(1, sizeof *s);
    if (!s)
        return PF_E_MEMORY;
    s->port = q;
    s->left = count;
    s->interval_ns = interval_ns;
    s->timer.pos = NO_POS;
    s->timer.kind = TIMER_SOURCE;
    s->frames = calloc(nframes, sizeof *s->frames);
    s->lengths = calloc(nframes, sizeof *s->lengths);
    bool ok = s->frames && s->lengths;
    for (; ok && s->nframes < nframes; s->nframes++) {
        uint32_t len = lengths[s->nframes];
        struct buf *b = len <= MAX_PACKET ? malloc(sizeof *b + len) : NULL;
        if (!(ok = b != NULL))
            break;
        memcpy(b->mem, frames, len);
        frames += len;
        s->frames[s->nframes] = b;
        s->lengths[s->nframes] = len;
    }
    pf_lock(f);
    int result = PF_OK;
    if (f->real && start_ns < f->now)
        start_ns = f->now; /* the clock went on since the caller read it */
    if (!ok || q->peer_kind != PEER_EXTERNAL || start_ns < f->now) {
        result = !ok ? PF_E_MEMORY : q->peer_kind != PEER_EXTERNAL ? PF_E_BUSY : PF_E_PAST;
        source_free(f, s);
    } else {
        s->next = q->sources;
        q->sources = s;
        timer_arm(f, &s->timer, start_ns, next_order(f));
        if (f->real)
            settle(f);
    }
    pf_unlock(f);
    return result;
}
