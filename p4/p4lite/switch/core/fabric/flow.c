/* What keeps ports of a link from sending too much: priority flow control, and credits; and hosts that take part. */
#include "flow.h"

#include <stdlib.h>

#define MAC_CONTROL 0x8808u

/* A MAC control frame for these priorities, zeros from byte 18 on; NULL when there is no memory for it. */
static struct packet *mac_control(struct fabric *f, uint32_t bytes, uint32_t opcode, uint64_t source_mac, uint8_t priorities)
{
    static const uint8_t address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};
    struct packet *p = packet_new(f, bytes);
    if (!p)
        return NULL;
    p->len = bytes;
    memset(p->data, 0, bytes);
    memcpy(p->data, address, sizeof address);
    for (uint32_t i = 0; i < 6; i++)
        p->data[6 + i] = (uint8_t)(source_mac >> (40 - 8 * i));
    const uint8_t head[6] = {MAC_CONTROL >> 8, MAC_CONTROL & 0xff, (uint8_t)(opcode >> 8), (uint8_t)opcode, 0, priorities};
    memcpy(p->data + 12, head, sizeof head);
    return p;
}

static bool is_mac_control(const struct packet *p)
{
    return p->len >= 16 && (p->data[12] << 8 | p->data[13]) == MAC_CONTROL;
}

/* -- priority flow control ------------------------------------------------------------------------------------------ */

/* Priority flow control (IEEE 802.1Qbb): how many bytes of each ingress port and priority wait in the switch, the pause
 * frames that follow from it, those that come from the other end, and a watchdog for pauses that do not end.
 *
 * A frame is made at the moment at which the transmitter takes it, from what holds then: `due` says for which classes
 * the peer is to be told something, and a change while the transmitter is busy costs no second frame. */
#define OPCODE_PFC 0x0101u
#define PFC_BYTES 60u /* the shortest frame, without FCS as all frames here */
#define QUANTUM_BITS 512u

static uint64_t quanta_ns(uint64_t quanta, uint64_t rate_bps)
{
    return rate_bps ? (uint64_t)((unsigned __int128)quanta * QUANTUM_BITS * 1000000000u / rate_bps) : 0;
}

static void earlier(uint64_t *least, uint64_t time)
{
    if (time < *least)
        *least = time;
}

/* Arms the timer for whatever comes first. */
static void pfc_plan(struct fabric *f, struct pfc *pfc)
{
    uint64_t next = PF_NO_TIME;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        const struct pfc_class *c = &pfc->classes[i];
        uint32_t bit = 1u << i;
        if (pfc->pausing & bit)
            earlier(&next, c->refresh_at);
        if (pfc->paused & bit)
            earlier(&next, c->paused_until);
        if (c->set.detection_ns && c->stuck_since != PF_NO_TIME && !(pfc->storm & bit))
            earlier(&next, c->stuck_since + c->set.detection_ns);
        if ((pfc->storm & bit) && !(pfc->paused & bit))
            earlier(&next, c->quiet_since + c->set.restoration_ns);
    }
    if (next == PF_NO_TIME)
        timer_cancel(f, &pfc->timer);
    else if (pfc->timer.pos == NO_POS || pfc->timer.time != next)
        timer_arm(f, &pfc->timer, next, next_order(f));
}

/* The state of a class is sent to the peer as soon as the transmitter is free. */
static void pfc_tell(struct fabric *f, struct pfc *pfc, uint32_t bit)
{
    pfc->due |= (uint8_t)bit;
    port_kick(f, pfc->port);
}

static void begin_pausing(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    pfc->pausing |= (uint8_t)(1u << i);
    pfc->classes[i].pausing_since = f->now;
    pfc->classes[i].refresh_at = PF_NO_TIME;
    pfc_tell(f, pfc, 1u << i);
}

static void end_pausing(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    pfc->pausing &= (uint8_t)~(1u << i);
    pfc->classes[i].stats.pausing_ns += f->now - pfc->classes[i].pausing_since;
    pfc_tell(f, pfc, 1u << i);
    pfc_plan(f, pfc);
}

/* The class may be sent again. */
static void end_pause(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    struct pfc_class *c = &pfc->classes[i];
    pfc->paused &= (uint8_t)~(1u << i);
    c->stats.paused_ns += f->now - c->paused_since;
    c->stuck_since = PF_NO_TIME;
    c->quiet_since = f->now;
    port_kick(f, pfc->port);
}

static void begin_pause(struct fabric *f, struct pfc *pfc, uint32_t i, uint64_t until)
{
    struct pfc_class *c = &pfc->classes[i];
    if (!(pfc->paused & 1u << i)) {
        pfc->paused |= (uint8_t)(1u << i);
        c->paused_since = f->now;
        if (pfc->port->queues[i].packets)
            c->stuck_since = f->now;
    }
    c->paused_until = until;
}

/* What a packet that is to wait at `q` takes of its ingress port's buffer. False: it was dropped. */
bool pfc_admit(struct fabric *f, struct port *q, struct packet *p, uint32_t priority)
{
    struct port *in = q->sw->ports[p->ingress_port];
    struct pfc *ours = in->pfc, *theirs = q->pfc;
    uint32_t bit = 1u << priority;
    if ((theirs && theirs->storm & bit) || (ours && ours->storm & bit)) {
        struct pfc *stuck = theirs && theirs->storm & bit ? theirs : ours;
        stuck->classes[priority].stats.watchdog_drops++;
        port_drop(f, stuck->port, p, PF_D_PFC_WATCHDOG);
        return false;
    }
    if (ours && ours->enabled & bit) {
        struct pfc_class *c = &ours->classes[priority];
        if (c->held + p->queue_bytes > c->set.xoff_bytes + c->set.headroom_bytes) {
            c->stats.headroom_drops++;
            port_drop(f, in, p, PF_D_HEADROOM_FULL);
            return false;
        }
        c->held += p->queue_bytes;
        if (c->held > c->stats.max_held_bytes)
            c->stats.max_held_bytes = c->held;
        if (c->held > c->set.xoff_bytes && !(ours->pausing & bit))
            begin_pausing(f, ours, priority);
    }
    if (theirs && theirs->paused & bit && theirs->classes[priority].stuck_since == PF_NO_TIME) {
        theirs->classes[priority].stuck_since = f->now;
        pfc_plan(f, theirs);
    }
    return true;
}

/* A packet has left its queue. */
void pfc_release(struct fabric *f, struct sw *s, const struct packet *p)
{
    struct pfc *ours = s->ports[p->ingress_port]->pfc;
    uint32_t bit = 1u << p->qid;
    if (!ours || !(ours->enabled & bit))
        return;
    struct pfc_class *c = &ours->classes[p->qid];
    c->held -= p->queue_bytes;
    if (c->held <= c->set.xon_bytes && ours->pausing & bit)
        end_pausing(f, ours, p->qid);
}

/* Whether a packet of a MAC control type is for the port itself: such frames are never forwarded. */
bool pfc_receive(struct fabric *f, struct port *in, struct packet *p)
{
    struct pfc *pfc = in->pfc;
    const uint8_t *b = p->data;
    if (!pfc->enabled || !is_mac_control(p))
        return false;
    observe(f, "rx_pause", in, p, 0);
    if (p->len >= 34 && (b[14] << 8 | b[15]) == OPCODE_PFC)
        for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
            struct pfc_class *c = &pfc->classes[i];
            uint32_t bit = 1u << i;
            if (!(b[17] & bit & pfc->enabled))
                continue;
            uint64_t quanta = (uint64_t)(b[18 + 2 * i] << 8 | b[19 + 2 * i]);
            uint64_t until = f->now + quanta_ns(quanta, in->out.set.rate_bps);
            c->stats.pauses_received += quanta != 0;
            c->stats.resumes_received += quanta == 0;
            if (until > f->now)
                begin_pause(f, pfc, i, until);
            else if (pfc->paused & bit)
                end_pause(f, pfc, i);
        }
    pfc_plan(f, pfc);
    packet_free(f, p);
    return true;
}

static void frame_time(struct packet *p, uint32_t class, uint64_t quanta)
{
    p->data[18 + 2 * class] = (uint8_t)(quanta >> 8);
    p->data[19 + 2 * class] = (uint8_t)quanta;
}

/* The frame that is due; NULL when there is no memory for it. */
struct packet *pfc_frame(struct fabric *f, struct port *q)
{
    struct pfc *pfc = q->pfc;
    uint8_t due = pfc->due;
    pfc->due = 0;
    struct packet *p = mac_control(f, PFC_BYTES, OPCODE_PFC, pfc->source_mac, due);
    if (!p)
        return NULL;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct pfc_class *c = &pfc->classes[i];
        if (!(due & 1u << i))
            continue;
        if (!(pfc->pausing & 1u << i)) {
            c->stats.resumes_sent++;
            continue;
        }
        c->stats.pauses_sent++;
        frame_time(p, i, c->set.quanta);
        uint64_t half = quanta_ns(c->set.quanta, q->in->set.rate_bps) / 2;
        c->refresh_at = half ? f->now + half : PF_NO_TIME;
    }
    pfc_plan(f, pfc);
    return p;
}

/* The watchdog's action: what waits is lost, and what comes, until no pause has been requested for a while. */
static void storm_begin(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    struct port *q = pfc->port;
    struct packet *p;
    pfc->storm |= (uint8_t)(1u << i);
    pfc->classes[i].stats.storms++;
    pfc->classes[i].stuck_since = PF_NO_TIME;
    while ((p = queue_pop(q, i))) {
        pfc->classes[i].stats.watchdog_drops++;
        pfc_release(f, q->sw, p);
        port_drop(f, q, p, PF_D_PFC_WATCHDOG);
    }
}

static void pfc_due(struct fabric *f, struct timer *t)
{
    struct pfc *pfc = CONTAINER(struct pfc, timer, t);
    timer_cancel(f, t);
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct pfc_class *c = &pfc->classes[i];
        uint32_t bit = 1u << i;
        if (pfc->pausing & bit && c->refresh_at <= f->now) {
            c->refresh_at = PF_NO_TIME;
            pfc_tell(f, pfc, bit);
        }
        if (pfc->paused & bit && c->paused_until <= f->now)
            end_pause(f, pfc, i);
        if (c->set.detection_ns && c->stuck_since != PF_NO_TIME && !(pfc->storm & bit) &&
            c->stuck_since + c->set.detection_ns <= f->now)
            storm_begin(f, pfc, i);
        if (pfc->storm & bit && !(pfc->paused & bit) && c->quiet_since + c->set.restoration_ns <= f->now)
            pfc->storm &= (uint8_t)~bit;
    }
    pfc_plan(f, pfc);
}

/* The link is gone: there is no peer that could request a pause, or receive a request. */
void pfc_link_lost(struct fabric *f, struct port *q)
{
    if (!q->pfc)
        return;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        if (q->pfc->paused & 1u << i)
            end_pause(f, q->pfc, i);
    pfc_plan(f, q->pfc);
}

void pfc_disable(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    uint32_t bit = 1u << i;
    if (!(pfc->enabled & bit))
        return;
    if (pfc->pausing & bit)
        end_pausing(f, pfc, i);
    if (pfc->paused & bit)
        end_pause(f, pfc, i);
    pfc->enabled &= (uint8_t)~bit;
    pfc->storm &= (uint8_t)~bit;
    pfc->classes[i].held = 0;
    pfc->classes[i].stuck_since = PF_NO_TIME;
    pfc->port->sw->pfc_classes--;
    pfc_plan(f, pfc);
}

static void pfc_off(struct fabric *f, struct port *q)
{
    for (uint32_t i = 0; q->pfc && i < PF_MAX_PRIORITIES; i++)
        pfc_disable(f, q->pfc, i);
    if (q->pfc)
        q->pfc->due = 0;
}

void pfc_free(struct fabric *f, struct port *q)
{
    pfc_off(f, q);
    if (q->pfc)
        timer_cancel(f, &q->pfc->timer);
    free(q->pfc);
    q->pfc = NULL;
}

/* Bytes of one ingress port and priority that wait in the switch. */
static uint64_t waiting(const struct port *in, uint32_t priority)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < in->sw->ports_size; i++)
        if (in->sw->ports[i])
            for (const struct packet *p = in->sw->ports[i]->queues[priority].list.head; p; p = p->next)
                bytes += p->ingress_port == in->number ? p->queue_bytes : 0;
    return bytes;
}

int pfc_enable(struct fabric *f, struct port *q, uint32_t i, const struct pf_pfc_settings *set)
{
    struct pfc *pfc = q->pfc;
    if (!pfc) {
        if (!(pfc = calloc(1, sizeof *pfc)))
            return PF_E_MEMORY;
        pfc->timer.pos = NO_POS;
        pfc->timer.due = pfc_due;
        pfc->port = q;
        q->pfc = pfc;
    }
    struct pfc_class *c = &pfc->classes[i];
    if (!(pfc->enabled & 1u << i)) {
        q->sw->pfc_classes++;
        pfc->enabled |= (uint8_t)(1u << i);
        c->held = waiting(q, i);
        c->stuck_since = PF_NO_TIME;
    }
    c->set = *set;
    pfc->source_mac = set->source_mac;
    if (c->held > set->xoff_bytes && !(pfc->pausing & 1u << i))
        begin_pausing(f, pfc, i);
    else if (c->held <= set->xon_bytes && pfc->pausing & 1u << i)
        end_pausing(f, pfc, i);
    pfc_plan(f, pfc);
    return PF_OK;
}

void pfc_reset_stats(const struct fabric *f, struct port *q)
{
    for (uint32_t i = 0; q->pfc && i < PF_MAX_PRIORITIES; i++) {
        struct pfc_class *c = &q->pfc->classes[i];
        memset(&c->stats, 0, sizeof c->stats);
        c->stats.max_held_bytes = c->held;
        c->pausing_since = c->paused_since = f->now;
    }
}

/* What each priority has counted until now; the times of what goes on are added. */
void pfc_read(const struct pfc *pfc, uint64_t now, struct pf_pfc_stats *stats)
{
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        const struct pfc_class *c = &pfc->classes[i];
        struct pf_pfc_stats *out = &stats[i];
        *out = c->stats;
        out->enabled = pfc->enabled >> i & 1;
        out->held_bytes = c->held;
        out->pausing = pfc->pausing >> i & 1;
        out->paused = pfc->paused >> i & 1;
        out->storm = pfc->storm >> i & 1;
        out->pausing_ns += out->pausing ? now - c->pausing_since : 0;
        out->paused_ns += out->paused ? now - c->paused_since : 0;
    }
}

/* -- credits -------------------------------------------------------------------------------------------------------- */

/* Link-level flow control by credits, after InfiniBand's: a port tells the other end of its link, for each priority, up to
 * where it may send, and who has no credit for a packet waits with it.
 *
 * All is counted in blocks of 64 bytes, modulo 2^32, as InfiniBand's FCTBS and FCCL are. A sender counts what it has `sent`;
 * the receiver counts the part of it that is `freed`: it has left the switch, ended in it, or was lost on the way. The limit that
 * it tells is freed + buffer. So sent - freed is what is under way and what waits, never more than the buffer; limits are
 * absolute, and one that is lost is made good by the next.
 *
 * Every port has the sending and the receiving half. A host's receiving half is here, too (`host`): it takes what arrives
 * at once, and its updates come in its name over the host's link. */
#define OPCODE_CREDITS 0x01c0u /* of our own, in the range of MAC control */
#define CREDITS_BYTES 86u
#define UPDATE_BYTES 8u /* what an update takes of the link: the size of InfiniBand's flow control packet */
#define AT_BODY 14u
#define AT_LIMIT 18u
#define AT_CLAIMED 50u
#define AT_CRC 82u
#define REPEAT_BYTES 65536u /* InfiniBand: again at least every 65 536 symbol times */
#define REPEAT_LEAST_NS 100000u
#define REPEAT_UNRATED_NS 1000000u

static uint32_t blocks_of(uint64_t bytes)
{
    return (uint32_t)((bytes + CREDIT_BLOCK - 1) / CREDIT_BLOCK);
}

static uint32_t credit(const struct credit_class *c)
{
    int32_t left = (int32_t)(c->limit - c->sent);
    return left > 0 ? (uint32_t)left : 0;
}

static void credits_tell(struct fabric *f, struct credits *cr, uint32_t bits)
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
    struct packet *p = mac_control(f, CREDITS_BYTES, OPCODE_CREDITS, host ? 0 : cr->source_mac, bits);
    if (!p)
        return NULL;
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
        linkdir_send(f, &q->host_in, p, f->now, true);
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
    p->ended = credits_release;
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
    p->ended = NULL;
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
    credits_tell(f, cr, 1u << p->credit_lane);
}

/* Whether a packet is an update, or another MAC control frame: these are for the port itself. */
bool credits_receive(struct fabric *f, struct port *in, struct packet *p)
{
    struct credits *cr = in->credits;
    const uint8_t *b = p->data;
    if (!cr->enabled || !is_mac_control(p))
        return false;
    observe(f, "rx_credits", in, p, 0);
    if (p->len >= CREDITS_BYTES && (b[14] << 8 | b[15]) == OPCODE_CREDITS &&
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

static void credits_plan(struct fabric *f, struct credits *cr)
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
    credits_tell(f, q->credits, q->credits->enabled);
    host_tells(f, q, q->credits->enabled);
}

static void credits_due(struct fabric *f, struct timer *t)
{
    struct credits *cr = CONTAINER(struct credits, timer, t);
    timer_cancel(f, t);
    credits_plan(f, cr);
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

int credits_enable(struct fabric *f, struct port *q, uint32_t i, const struct pf_credit_settings *set)
{
    struct credits *cr = q->credits;
    if (!cr) {
        if (!(cr = calloc(1, sizeof *cr)))
            return PF_E_MEMORY;
        cr->timer.pos = NO_POS;
        cr->timer.due = credits_due;
        cr->port = q;
        cr->epoch = ++f->credit_epochs;
        for (uint32_t k = 0; k < PF_MAX_PRIORITIES; k++)
            cr->classes[k].stalled_since = PF_NO_TIME;
        q->credits = cr;
        lookahead_update(f);
    }
    struct credit_class *c = &cr->classes[i];
    uint32_t buffer = (uint32_t)(set->buffer_bytes / CREDIT_BLOCK);
    if (!(cr->enabled & 1u << i)) {
        cr->enabled |= (uint8_t)(1u << i);
        c->buffer = c->least = buffer;
    }
    c->dscps = set->dscps;
    cr->source_mac = set->source_mac;
    timer_arm(f, &cr->timer, f->now, next_order(f));
    return PF_OK;
}

void credits_disable(struct fabric *f, struct credits *cr, uint32_t i)
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

/* What each priority has counted until now; the time of a stall that goes on is added. */
void credits_read(const struct credits *cr, uint64_t now, struct pf_credit_stats *stats)
{
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        const struct credit_class *c = &cr->classes[i];
        struct pf_credit_stats *out = &stats[i];
        *out = c->stats;
        out->buffer_bytes = (uint64_t)c->buffer * CREDIT_BLOCK;
        out->credit_bytes = (uint64_t)credit(c) * CREDIT_BLOCK;
        out->least_credit_bytes = (uint64_t)c->least * CREDIT_BLOCK;
        out->held_bytes = (uint64_t)c->held * CREDIT_BLOCK;
        out->max_held_bytes = (uint64_t)c->most * CREDIT_BLOCK;
        out->stalled = c->stalled_since != PF_NO_TIME;
        out->stall_ns += out->stalled ? now - c->stalled_since : 0;
    }
}

/* -- hosts ---------------------------------------------------------------------------------------------------------- */

/* A host's packet on its way to this port: it has used the host's credits. */
static void credits_host_sent(struct port *in, struct packet *p)
{
    struct credits *cr = in->credits;
    uint32_t lane = host_lane(cr, p);
    if (lane == PF_MAX_PRIORITIES)
        return;
    uint32_t blocks = blocks_of(p->len);
    claim(p, in, lane, false, blocks);
    cr->classes[lane].claimed += blocks;
}

/* A host's packet takes its link; see linkdir_host_send. */
uint64_t host_sends(struct fabric *f, struct port *q, struct packet *p, uint64_t at)
{
    if (q->credits)
        credits_host_sent(q, p);
    return linkdir_host_send(f, &q->host_in, p, at);
}

/* A frame of the host at this port, for all classes. */
static void storm_send(struct fabric *f, struct port *q, uint64_t quanta)
{
    struct packet *p = mac_control(f, PFC_BYTES, OPCODE_PFC, q->storm_mac, 0xff);
    if (!p)
        return;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        frame_time(p, i, quanta);
    q->stats.storm_frames++;
    linkdir_host_send(f, &q->host_in, p, f->now);
}

/* The host at this port begins to ask for pauses without end, or has its buffer free again and says so. */
void storm_update(struct fabric *f, struct port *q)
{
    const struct linkdir *d = &q->host_in;
    bool reached = q->in == d && d->up;
    if (reached && d->set.pause_storm_mac) {
        q->storm_mac = d->set.pause_storm_mac;
        if (q->storm.pos == NO_POS)
            timer_arm(f, &q->storm, f->now, next_order(f));
    } else if (q->storm.pos != NO_POS) {
        timer_cancel(f, &q->storm);
        if (reached && q->peer_kind != PEER_NONE)
            storm_send(f, q, 0);
    }
    if (!d->set.pause_storm_mac && q->credits)
        credits_host_recovers(f, q);
}

/* For the longest time that there is, and again after half of it; without a rate a pause has no length. */
void storm_due(struct fabric *f, struct timer *t)
{
    struct port *q = CONTAINER(struct port, storm, t);
    timer_cancel(f, t);
    uint64_t half = quanta_ns(0xffff, q->out.set.rate_bps) / 2;
    if (half)
        timer_arm(f, &q->storm, f->now + half, next_order(f));
    storm_send(f, q, 0xffff);
}
