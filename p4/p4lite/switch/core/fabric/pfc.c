/* Priority flow control (IEEE 802.1Qbb): how many bytes of each ingress port and priority wait in the switch, the pause
 * frames that follow from it, those that come from the other end, and a watchdog for pauses that do not end.
 *
 * A frame is made at the moment at which the transmitter takes it, from what holds then: `due` says for which classes
 * the peer is to be told something, and a change while the transmitter is busy costs no second frame. */
#include <stdlib.h>

#include "internal.h"

#define MAC_CONTROL 0x8808u
#define OPCODE_PFC 0x0101u
#define FRAME_BYTES 60u /* the shortest frame, without FCS as all frames here */
#define QUANTUM_BITS 512u

static const uint8_t mac_control_address[6] = {0x01, 0x80, 0xc2, 0x00, 0x00, 0x01};

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
static void plan(struct fabric *f, struct pfc *pfc)
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
static void tell(struct fabric *f, struct pfc *pfc, uint32_t bit)
{
    pfc->due |= (uint8_t)bit;
    port_kick(f, pfc->port);
}

static void begin_pausing(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    pfc->pausing |= (uint8_t)(1u << i);
    pfc->classes[i].pausing_since = f->now;
    pfc->classes[i].refresh_at = PF_NO_TIME;
    tell(f, pfc, 1u << i);
}

static void end_pausing(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    pfc->pausing &= (uint8_t)~(1u << i);
    pfc->classes[i].stats.pausing_ns += f->now - pfc->classes[i].pausing_since;
    tell(f, pfc, 1u << i);
    plan(f, pfc);
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
        plan(f, theirs);
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
    if (!pfc->enabled || p->len < 16 || (b[12] << 8 | b[13]) != MAC_CONTROL)
        return false;
    if (f->trace)
        trace_packet(f, "rx_pause", in, p);
    if (in->pcap)
        pcap_packet(f, in, p, 0);
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
    plan(f, pfc);
    packet_free(f, p);
    return true;
}

/* A frame for these classes, all times 0; NULL when there is no memory for it. */
static struct packet *frame_new(struct fabric *f, uint64_t source_mac, uint8_t classes)
{
    struct packet *p = packet_new(f, FRAME_BYTES);
    if (!p)
        return NULL;
    p->len = FRAME_BYTES;
    memset(p->data, 0, FRAME_BYTES);
    memcpy(p->data, mac_control_address, sizeof mac_control_address);
    for (uint32_t i = 0; i < 6; i++)
        p->data[6 + i] = (uint8_t)(source_mac >> (40 - 8 * i));
    const uint8_t head[6] = {MAC_CONTROL >> 8, MAC_CONTROL & 0xff, OPCODE_PFC >> 8, OPCODE_PFC & 0xff, 0, classes};
    memcpy(p->data + 12, head, sizeof head);
    return p;
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
    struct packet *p = frame_new(f, pfc->source_mac, due);
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
    plan(f, pfc);
    return p;
}

/* The watchdog's action: what waits is lost, and what comes, until no pause has been requested for a while. */
static void storm_begin(struct fabric *f, struct pfc *pfc, uint32_t i)
{
    struct port *q = pfc->port;
    struct queue *queue = &q->queues[i];
    struct packet *p;
    pfc->storm |= (uint8_t)(1u << i);
    pfc->classes[i].stats.storms++;
    pfc->classes[i].stuck_since = PF_NO_TIME;
    while ((p = list_pop(&queue->list))) {
        queue->packets--;
        queue->bytes -= p->queue_bytes;
        q->packets--;
        q->bytes -= p->queue_bytes;
        pfc->classes[i].stats.watchdog_drops++;
        pfc_release(f, q->sw, p);
        port_drop(f, q, p, PF_D_PFC_WATCHDOG);
    }
}

void pfc_fire(struct fabric *f, struct pfc *pfc)
{
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct pfc_class *c = &pfc->classes[i];
        uint32_t bit = 1u << i;
        if (pfc->pausing & bit && c->refresh_at <= f->now) {
            c->refresh_at = PF_NO_TIME;
            tell(f, pfc, bit);
        }
        if (pfc->paused & bit && c->paused_until <= f->now)
            end_pause(f, pfc, i);
        if (c->set.detection_ns && c->stuck_since != PF_NO_TIME && !(pfc->storm & bit) &&
            c->stuck_since + c->set.detection_ns <= f->now)
            storm_begin(f, pfc, i);
        if (pfc->storm & bit && !(pfc->paused & bit) && c->quiet_since + c->set.restoration_ns <= f->now)
            pfc->storm &= (uint8_t)~bit;
    }
    plan(f, pfc);
}

/* The link is gone: there is no peer that could request a pause, or receive a request. */
void pfc_link_lost(struct fabric *f, struct port *q)
{
    if (!q->pfc)
        return;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        if (q->pfc->paused & 1u << i)
            end_pause(f, q->pfc, i);
    plan(f, q->pfc);
}

/* A frame of the host at this port, for all classes. */
static void storm_send(struct fabric *f, struct port *q, uint64_t quanta)
{
    struct packet *p = frame_new(f, q->storm_mac, 0xff);
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
void storm_fire(struct fabric *f, struct port *q)
{
    uint64_t half = quanta_ns(0xffff, q->out.set.rate_bps) / 2;
    if (half)
        timer_arm(f, &q->storm, f->now + half, next_order(f));
    storm_send(f, q, 0xffff);
}

static void disable(struct fabric *f, struct pfc *pfc, uint32_t i)
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
    plan(f, pfc);
}

void pfc_off(struct fabric *f, struct port *q)
{
    for (uint32_t i = 0; q->pfc && i < PF_MAX_PRIORITIES; i++)
        disable(f, q->pfc, i);
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

static int enable(struct fabric *f, struct port *q, uint32_t i, const struct pf_pfc_settings *set)
{
    struct pfc *pfc = q->pfc;
    if (!pfc) {
        if (!(pfc = calloc(1, sizeof *pfc)))
            return PF_E_MEMORY;
        pfc->timer.pos = NO_POS;
        pfc->timer.kind = TIMER_PFC;
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
    plan(f, pfc);
    return PF_OK;
}

int pf_port_pfc(struct port *q, uint32_t priority, const struct pf_pfc_settings *set)
{
    struct fabric *f = q->sw->fabric;
    if (priority >= q->sw->config.priority_queues ||
        (set && (set->xon_bytes > set->xoff_bytes || set->quanta < 1 || set->quanta > 0xffff)))
        return PF_E_RANGE;
    pf_lock(f);
    settle(f);
    int result = PF_OK;
    if (set && q->credits && q->credits->enabled)
        result = PF_E_BUSY;
    else if (set)
        result = enable(f, q, priority, set);
    else if (q->pfc)
        disable(f, q->pfc, priority);
    settle(f);
    pf_unlock(f);
    return result;
}

static struct pf_pfc_stats class_stats(uint64_t now, const struct pfc *pfc, uint32_t i)
{
    const struct pfc_class *c = &pfc->classes[i];
    uint32_t bit = 1u << i;
    struct pf_pfc_stats out = c->stats;
    out.enabled = (pfc->enabled & bit) != 0;
    out.held_bytes = c->held;
    out.pausing = (pfc->pausing & bit) != 0;
    out.paused = (pfc->paused & bit) != 0;
    out.storm = (pfc->storm & bit) != 0;
    if (out.pausing)
        out.pausing_ns += now - c->pausing_since;
    if (out.paused)
        out.paused_ns += now - c->paused_since;
    return out;
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

uint32_t pf_port_pfc_stats(struct port *q, struct pf_pfc_stats *out)
{
    const struct fabric *f = q->sw->fabric;
    uint32_t enabled = 0;
    pf_lock(q->sw->fabric);
    if (q->pfc) {
        uint64_t now = f->real ? clock_read(f) : f->now; /* an idle loop leaves its own time behind */
        enabled = q->pfc->enabled;
        for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
            out[i] = class_stats(now, q->pfc, i);
    }
    pf_unlock(q->sw->fabric);
    return enabled;
}
