/* Link-level flow control by credits, after InfiniBand's: a port tells the other end of its link, for each priority, up to
 * where it may send, and who has no credit for a packet waits with it.
 *
 * All is counted in blocks of 64 bytes, modulo 2^32, as InfiniBand's FCTBS and FCCL are. A sender counts what it has `sent`;
 * the receiver what of that is `freed` again: what has left the switch, ended in it, or was lost on the way. The limit that
 * it tells is freed + buffer. So sent - freed is what is under way and what waits, never more than the buffer; limits are
 * absolute, and one that is lost is made good by the next.
 *
 * Every port has the sending and the receiving half. A host's receiving half is here, too (`host`): it takes what arrives
 * at once, and its updates come in its name over the host's link. */
#include <stdlib.h>

#include "internal.h"

#define BLOCK 64u
#define MAC_CONTROL 0x8808u
#define OPCODE_CREDITS 0x01c0u /* of our own, in the range of MAC control */
#define FRAME_BYTES 86u
#define UPDATE_BYTES 8u /* what an update takes of the link: the size of InfiniBand's flow control packet */
#define AT_BODY 14u
#define AT_LIMIT 18u
#define AT_CLAIMED 50u
#define AT_CRC 82u
#define REPEAT_BYTES 65536u /* InfiniBand: again at least every 65 536 symbol times */
#define REPEAT_LEAST_NS 100000u
#define REPEAT_UNRATED_NS 1000000u

static const uint8_t mac_control_address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};

static uint32_t blocks_of(uint64_t bytes)
{
    return (uint32_t)((bytes + BLOCK - 1) / BLOCK);
}

static uint32_t credit(const struct credit_class *c)
{
    int32_t left = (int32_t)(c->limit - c->sent);
    return left > 0 ? (uint32_t)left : 0;
}

static void tell(struct fabric *f, struct credits *cr, uint32_t bits)
{
    cr->due |= (uint8_t)(bits & cr->enabled);
    port_kick(f, cr->port);
}

static void put(uint8_t *at, uint32_t value)
{
    for (uint32_t i = 0; i < 4; i++)
        at[i] = (uint8_t)(value >> (24 - 8 * i));
}

static uint32_t get(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* An update for these priorities. `host`: of the host at this port, else of the port. */
static struct packet *frame_new(struct fabric *f, const struct credits *cr, uint8_t bits, bool host)
{
    struct packet *p = packet_new(f, FRAME_BYTES);
    if (!p)
        return NULL;
    p->len = FRAME_BYTES;
    memset(p->data, 0, FRAME_BYTES);
    memcpy(p->data, mac_control_address, sizeof mac_control_address);
    for (uint32_t i = 0; i < 6 && !host; i++)
        p->data[6 + i] = (uint8_t)(cr->source_mac >> (40 - 8 * i));
    const uint8_t head[6] = {MAC_CONTROL >> 8, MAC_CONTROL & 0xff, OPCODE_CREDITS >> 8, OPCODE_CREDITS & 0xff, 0, bits};
    memcpy(p->data + 12, head, sizeof head);
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        if (bits & 1u << i) {
            const struct credit_class *c = &cr->classes[i];
            put(p->data + AT_LIMIT + 4 * i, (host ? c->host_freed : c->freed) + c->buffer);
            put(p->data + AT_CLAIMED + 4 * i, host ? c->sent : c->claimed);
        }
    put(p->data + AT_CRC, crc32_of(p->data + AT_BODY, AT_CRC - AT_BODY));
    return p;
}

/* The update that is due; NULL when there is no memory for it. */
struct packet *credits_frame(struct fabric *f, struct port *q)
{
    struct credits *cr = q->credits;
    uint8_t due = cr->due;
    cr->due = 0;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        cr->classes[i].stats.updates_sent += due >> i & 1;
    return frame_new(f, cr, due, false);
}

uint64_t credits_frame_time(struct port *q)
{
    return linkdir_serialise(&q->out, &q->out.rate_rest, UPDATE_BYTES);
}

/* An update in the name of the host at this port. A host that is stuck frees nothing. */
static void host_tells(struct fabric *f, struct port *q, uint8_t bits)
{
    if (q->in != &q->host_in)
        return;
    struct packet *p = frame_new(f, q->credits, bits, true);
    if (p)
        linkdir_send_aside(f, &q->host_in, p, f->now);
}

void credits_host_recovers(struct fabric *f, struct port *q)
{
    struct credits *cr = q->credits;
    uint32_t stuck = 0;
    for (uint32_t i = 0; cr && i < PF_MAX_PRIORITIES; i++) {
        stuck |= cr->classes[i].host_stuck;
        cr->classes[i].host_freed += cr->classes[i].host_stuck;
        cr->classes[i].host_stuck = 0;
    }
    if (stuck)
        host_tells(f, q, cr->enabled);
}

/* Whether the first packet of a priority must wait. */
bool credits_short(const struct fabric *f, struct port *q, uint32_t priority, const struct packet *head)
{
    struct credits *cr = q->credits;
    struct credit_class *c = &cr->classes[priority];
    if (!(cr->enabled & 1u << priority) || !q->out.up)
        return false;
    if (!c->stash && blocks_of(head->queue_bytes) <= credit(c))
        return false;
    if (c->stalled_since == PF_NO_TIME) {
        c->stalled_since = f->now;
        c->stats.stalls++;
    }
    return true;
}

static uint32_t peer_buffer(const struct port *q, uint32_t priority)
{
    const struct port *peer = q->peer && q->peer->credits ? q->peer : q;
    return peer->credits->classes[priority].buffer;
}

/* Whether a packet that comes to a queue can ever leave it. */
bool credits_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority)
{
    if (!(q->credits->enabled & 1u << priority) || blocks_of(p->queue_bytes) <= peer_buffer(q, priority))
        return true;
    port_drop(f, q, p, PF_D_OVER_BUFFER);
    return false;
}

static void claim(struct packet *p, struct port *to, uint32_t priority, bool host, uint32_t blocks)
{
    p->credit_port = to;
    p->credit_epoch = to->credits->epoch;
    p->credit_blocks = blocks;
    p->credit_lane = (uint8_t)priority;
    p->credit_host = host;
    p->credit_held = false;
}

/* A packet as it is to be sent. NULL: it waits for more credits after all, since egress made it longer. */
struct packet *credits_take(struct fabric *f, struct port *q, struct packet *p, uint32_t priority)
{
    struct credits *cr = q->credits;
    struct credit_class *c = &cr->classes[priority];
    if (!(cr->enabled & 1u << priority) || !q->out.up)
        return p;
    uint32_t blocks = blocks_of(p->len);
    if (blocks > peer_buffer(q, priority)) {
        port_drop(f, q, p, PF_D_OVER_BUFFER);
        return NULL;
    }
    if (blocks > credit(c)) {
        c->stash = p;
        cr->stashed |= (uint8_t)(1u << priority);
        return NULL;
    }
    c->sent += blocks;
    if (credit(c) < c->least)
        c->least = credit(c);
    if (c->stalled_since != PF_NO_TIME) {
        c->stats.stall_ns += f->now - c->stalled_since;
        c->stalled_since = PF_NO_TIME;
    }
    if (!q->peer) {
        claim(p, q, priority, true, blocks);
    } else if (q->peer->credits) {
        claim(p, q->peer, priority, false, blocks);
        q->peer->credits->classes[priority].claimed += blocks;
    }
    return p;
}

/* A packet that has been through egress and may go now; NULL: none. */
struct packet *credits_unstash(struct port *q, uint32_t *priority)
{
    struct credits *cr = q->credits;
    for (uint32_t i = PF_MAX_PRIORITIES; i-- > 0;) {
        struct credit_class *c = &cr->classes[i];
        if (c->stash && (!(cr->enabled & 1u << i) || !q->out.up || blocks_of(c->stash->len) <= credit(c))) {
            struct packet *p = c->stash;
            c->stash = NULL;
            cr->stashed &= (uint8_t)~(1u << i);
            *priority = i;
            return p;
        }
    }
    return NULL;
}

/* The priority of a host's packet at its link: by its DSCP, as switches take it that trust it. */
static uint32_t host_lane(const struct credits *cr, const struct packet *p)
{
    uint32_t type = p->len >= 16 ? (uint32_t)(p->data[12] << 8 | p->data[13]) : 0, dscp;
    if (type == 0x86dd)
        dscp = (uint32_t)((p->data[14] & 0x0f) << 2 | p->data[15] >> 6);
    else if (type == 0x0800)
        dscp = p->data[15] >> 2;
    else
        return PF_MAX_PRIORITIES;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        if (cr->enabled & 1u << i && cr->classes[i].dscps >> dscp & 1)
            return i;
    return PF_MAX_PRIORITIES;
}

/* A host's packet on its way to this port: it has used the host's credits. */
void credits_host_sent(struct port *in, struct packet *p)
{
    struct credits *cr = in->credits;
    uint32_t lane = host_lane(cr, p);
    if (lane == PF_MAX_PRIORITIES)
        return;
    uint32_t blocks = blocks_of(p->len);
    claim(p, in, lane, false, blocks);
    cr->classes[lane].claimed += blocks;
}

/* A packet has arrived at a switch. */
void credits_arrived(struct port *in, struct packet *p)
{
    if (p->credit_port != in || p->credit_host || p->credit_epoch != in->credits->epoch)
        return;
    struct credit_class *c = &in->credits->classes[p->credit_lane];
    p->credit_held = true;
    c->held += p->credit_blocks;
    if (c->held > c->most)
        c->most = c->held;
}

/* A packet no longer needs the room that its sender had a credit for, wherever it is. */
void credits_release(struct fabric *f, struct packet *p)
{
    struct port *q = p->credit_port;
    struct credits *cr = q->credits;
    p->credit_port = NULL;
    if (!cr || p->credit_epoch != cr->epoch)
        return;
    struct credit_class *c = &cr->classes[p->credit_lane];
    if (p->credit_host) {
        if (q->host_in.set.pause_storm_mac) {
            c->host_stuck += p->credit_blocks;
            return;
        }
        c->host_freed += p->credit_blocks;
        host_tells(f, q, (uint8_t)(1u << p->credit_lane));
        return;
    }
    if (p->credit_held)
        c->held -= p->credit_blocks;
    c->freed += p->credit_blocks;
    tell(f, cr, 1u << p->credit_lane);
}

/* Whether a packet is an update, or another MAC control frame: these are for the port itself. */
bool credits_receive(struct fabric *f, struct port *in, struct packet *p)
{
    struct credits *cr = in->credits;
    const uint8_t *b = p->data;
    if (!cr->enabled || p->len < 16 || (b[12] << 8 | b[13]) != MAC_CONTROL)
        return false;
    if (f->trace)
        trace_packet(f, "rx_credits", in, p);
    if (in->pcap)
        pcap_packet(f, in, p, 0);
    if (p->len >= FRAME_BYTES && (b[14] << 8 | b[15]) == OPCODE_CREDITS &&
        crc32_of(b + AT_BODY, AT_CRC - AT_BODY) == get(b + AT_CRC)) {
        for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
            struct credit_class *c = &cr->classes[i];
            if (!(b[17] & 1u << i & cr->enabled))
                continue;
            c->stats.updates_received++;
            uint32_t limit = get(b + AT_LIMIT + 4 * i);
            if ((int32_t)(limit - c->limit) > 0) /* not one that a later one has overtaken */
                c->limit = limit;
        }
        port_kick(f, in);
    }
    packet_free(f, p);
    return true;
}

static void plan(struct fabric *f, struct credits *cr)
{
    uint64_t rate = cr->port->out.set.rate_bps;
    uint64_t wait = rate ? REPEAT_BYTES * UINT64_C(8000000000) / rate : REPEAT_UNRATED_NS;
    timer_arm(f, &cr->timer, f->now + (wait > REPEAT_LEAST_NS ? wait : REPEAT_LEAST_NS), next_order(f));
}

/* Both halves tell everything: what was told before may have been lost. */
void credits_announce(struct fabric *f, struct port *q)
{
    if (!q->credits || !q->credits->enabled)
        return;
    tell(f, q->credits, q->credits->enabled);
    host_tells(f, q, q->credits->enabled);
}

void credits_fire(struct fabric *f, struct credits *cr)
{
    plan(f, cr);
    credits_announce(f, cr->port);
}

/* Packets that egress has dealt with, and that the switch loses with its queues. */
void credits_flush(struct fabric *f, struct port *q)
{
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct credit_class *c = &q->credits->classes[i];
        if (c->stash) {
            q->sw->stats.drops[PF_S_FLUSHED]++;
            packet_free(f, c->stash);
            c->stash = NULL;
        }
    }
    q->credits->stashed = 0;
}

/* A new link without packets on it: both ends start from their initial state. */
void credits_reset(struct fabric *f, struct port *q)
{
    struct credits *cr = q->credits;
    if (!cr)
        return;
    cr->epoch = ++f->credit_epochs;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct credit_class *c = &cr->classes[i];
        c->sent = c->limit = c->freed = c->claimed = c->held = c->most = c->host_freed = c->host_stuck = 0;
        c->least = c->buffer;
        c->stalled_since = PF_NO_TIME;
    }
    if (cr->enabled)
        timer_arm(f, &cr->timer, f->now, next_order(f));
}

void credits_free(struct fabric *f, struct port *q)
{
    if (!q->credits)
        return;
    credits_flush(f, q);
    timer_cancel(f, &q->credits->timer);
    free(q->credits);
    q->credits = NULL;
}

static int enable(struct fabric *f, struct port *q, uint32_t i, const struct pf_credit_settings *set)
{
    struct credits *cr = q->credits;
    if (!cr) {
        if (!(cr = calloc(1, sizeof *cr)))
            return PF_E_MEMORY;
        cr->timer.pos = NO_POS;
        cr->timer.kind = TIMER_CREDITS;
        cr->port = q;
        cr->epoch = ++f->credit_epochs;
        for (uint32_t k = 0; k < PF_MAX_PRIORITIES; k++)
            cr->classes[k].stalled_since = PF_NO_TIME;
        q->credits = cr;
        lookahead_update(f);
    }
    struct credit_class *c = &cr->classes[i];
    uint32_t buffer = (uint32_t)(set->buffer_bytes / BLOCK);
    if (!(cr->enabled & 1u << i)) {
        cr->enabled |= (uint8_t)(1u << i);
        c->buffer = c->least = buffer;
    }
    c->dscps = set->dscps;
    cr->source_mac = set->source_mac;
    timer_arm(f, &cr->timer, f->now, next_order(f));
    return PF_OK;
}

static void disable(struct fabric *f, struct credits *cr, uint32_t i)
{
    struct credit_class *c = &cr->classes[i];
    cr->enabled &= (uint8_t)~(1u << i);
    cr->due &= cr->enabled;
    if (c->stalled_since != PF_NO_TIME)
        c->stats.stall_ns += f->now - c->stalled_since;
    c->stalled_since = PF_NO_TIME;
    if (!cr->enabled)
        timer_cancel(f, &cr->timer);
    port_kick(f, cr->port);
}

int pf_port_credits(struct port *q, uint32_t priority, const struct pf_credit_settings *set)
{
    struct fabric *f = q->sw->fabric;
    if (priority >= q->sw->config.priority_queues ||
        (set && (set->buffer_bytes < BLOCK || set->buffer_bytes > (uint64_t)BLOCK << 30)))
        return PF_E_RANGE;
    pf_lock(f);
    settle(f);
    int result = PF_OK;
    if (set && q->pfc && q->pfc->enabled)
        result = PF_E_BUSY;
    else if (set && q->credits && q->credits->classes[priority].buffer &&
             set->buffer_bytes / BLOCK != q->credits->classes[priority].buffer)
        result = PF_E_EXISTS; /* what was promised cannot be taken back */
    else if (set)
        result = enable(f, q, priority, set);
    else if (q->credits && q->credits->enabled >> priority & 1)
        disable(f, q->credits, priority);
    settle(f);
    pf_unlock(f);
    return result;
}

uint32_t pf_port_credit_stats(struct port *q, struct pf_credit_stats *out)
{
    struct fabric *f = q->sw->fabric;
    uint32_t enabled = 0;
    pf_lock(f);
    if (q->credits) {
        uint64_t now = f->real ? clock_read(f) : f->now;
        enabled = q->credits->enabled;
        for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
            const struct credit_class *c = &q->credits->classes[i];
            out[i] = c->stats;
            out[i].buffer_bytes = (uint64_t)c->buffer * BLOCK;
            out[i].credit_bytes = (uint64_t)credit(c) * BLOCK;
            out[i].least_credit_bytes = (uint64_t)c->least * BLOCK;
            out[i].held_bytes = (uint64_t)c->held * BLOCK;
            out[i].max_held_bytes = (uint64_t)c->most * BLOCK;
            out[i].stalled = c->stalled_since != PF_NO_TIME;
            if (out[i].stalled)
                out[i].stall_ns += now - c->stalled_since;
        }
    }
    pf_unlock(f);
    return enabled;
}

void credits_reset_stats(const struct fabric *f, struct port *q)
{
    for (uint32_t i = 0; q->credits && i < PF_MAX_PRIORITIES; i++) {
        struct credit_class *c = &q->credits->classes[i];
        memset(&c->stats, 0, sizeof c->stats);
        c->most = c->held;
        c->least = credit(c);
        if (c->stalled_since != PF_NO_TIME)
            c->stalled_since = f->now;
    }
}
