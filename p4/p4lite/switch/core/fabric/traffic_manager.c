/* Traffic manager: strict-priority queues in front of one transmitter per port. */
#include "internal.h"

/* Serve the port once the event at hand is done (never from within a pipeline: no recursion). */
void port_kick(struct fabric *f, struct port *q)
{
    if (q->kicked || q->timer.pos != NO_POS)
        return;
    q->kicked = true;
    q->next_kicked = NULL;
    if (f->kicked_tail)
        f->kicked_tail->next_kicked = q;
    else
        f->kicked_head = q;
    f->kicked_tail = q;
}

/* Tail drop at the queue's limits, then at the port's. The packet counts with its length before egress. */
void port_enqueue(struct fabric *f, struct port *q, struct packet *p, uint32_t priority)
{
    struct queue *queue = &q->queues[priority];
    uint32_t bytes = p->queue_bytes;
    bool queue_full = (queue->limit_packets && queue->packets >= queue->limit_packets) ||
                      (queue->limit_bytes && queue->bytes + bytes > queue->limit_bytes);
    bool buffer_full = (q->limit_packets && q->packets >= q->limit_packets) ||
                       (q->limit_bytes && q->bytes + bytes > q->limit_bytes);
    if (queue_full || buffer_full) {
        queue->stats.dropped_packets++;
        queue->stats.dropped_bytes += bytes;
        port_drop(f, q, p, queue_full ? PF_D_QUEUE_FULL : PF_D_BUFFER_FULL);
        return;
    }
    if (q->credits && !credits_admit(f, q, p, priority))
        return;
    if (q->sw->pfc_classes && !pfc_admit(f, q, p, priority))
        return;
    p->qid = (uint8_t)priority;
    p->time = f->now;
    list_push(&queue->list, p);
    queue->packets++;
    queue->bytes += bytes;
    q->packets++;
    q->bytes += bytes;
    queue->stats.enqueued_packets++;
    queue->stats.enqueued_bytes += bytes;
    if (queue->packets > queue->stats.max_packets)
        queue->stats.max_packets = queue->packets;
    if (queue->bytes > queue->stats.max_bytes)
        queue->stats.max_bytes = queue->bytes;
    port_kick(f, q);
}

/* The next packet; NULL when all that wait are of paused priorities, or of such without credit. */
static struct packet *dequeue(struct fabric *f, struct port *q)
{
    uint32_t i = q->sw->config.priority_queues - 1, paused = q->pfc ? q->pfc->paused : 0;
    while (!q->queues[i].list.head || paused >> i & 1 ||
           (q->credits && credits_short(f, q, i, q->queues[i].list.head)))
        if (i-- == 0)
            return NULL;
    struct queue *queue = &q->queues[i];
    struct packet *p = list_pop(&queue->list);
    queue->packets--;
    queue->bytes -= p->queue_bytes;
    q->packets--;
    q->bytes -= p->queue_bytes;
    if (q->sw->pfc_classes)
        pfc_release(f, q->sw, p);
    if (p->credit_port)
        credits_release(f, p);
    return p;
}

/* A pause frame goes before all packets, and only the peer's MAC takes it. */
static bool transmit_pause(struct fabric *f, struct port *q, uint64_t start)
{
    struct packet *p = pfc_frame(f, q);
    if (!p)
        return false;
    if (f->trace)
        trace_packet(f, "tx_pause", q, p);
    if (q->pcap)
        pcap_packet(f, q, p, 1);
    q->free_at = start + linkdir_serialise(&q->out, &q->out.rate_rest, p->len);
    linkdir_send(f, &q->out, p, q->free_at);
    return true;
}

/* So does an update of credits. */
static bool transmit_credits(struct fabric *f, struct port *q, uint64_t start)
{
    struct packet *p = credits_frame(f, q);
    if (!p)
        return false;
    if (f->trace)
        trace_packet(f, "tx_credits", q, p);
    if (q->pcap)
        pcap_packet(f, q, p, 1);
    q->free_at = start + credits_frame_time(q);
    linkdir_send(f, &q->out, p, q->free_at);
    return true;
}

static void transmit(struct fabric *f, struct port *q, struct packet *p, uint64_t start)
{
    q->stats.tx_packets++;
    q->stats.tx_bytes += p->len;
    q->sw->stats.transmitted++;
    if (f->trace)
        trace_packet(f, "tx", q, p);
    if (q->pcap)
        pcap_packet(f, q, p, 1);
    q->free_at = start + linkdir_serialise(&q->out, &q->out.rate_rest, p->len);
    switch (q->peer_kind) {
    case PEER_CPU:
        if (p->missing)
            packet_reveal(f, p);
        notify(f, PF_N_PACKET_IN, q->sw->config.device_id, q->number, 0, p->data, packet_stored(p));
        packet_free(f, p);
        break;
    case PEER_NONE:
        port_drop(f, q, p, PF_D_NO_PEER);
        break;
    default:
        linkdir_send(f, &q->out, p, q->free_at);
    }
}

/* Sends while the transmitter is free: the highest priority first; egress runs when a packet leaves its queue.
 * The first transmission begins at `start`, which may lie before now. */
void port_serve(struct fabric *f, struct port *q, uint64_t start)
{
    while ((q->packets || port_has_more(q)) && q->sw->state == PF_RUNNING) {
        if (q->free_at > f->now) {
            timer_arm(f, &q->timer, q->free_at, next_order(f));
            return;
        }
        if (q->pfc && q->pfc->due) {
            if (transmit_pause(f, q, start))
                start = q->free_at;
            continue;
        }
        if (q->credits && q->credits->due) {
            if (transmit_credits(f, q, start))
                start = q->free_at;
            continue;
        }
        uint32_t lane;
        struct packet *p = q->credits && q->credits->stashed ? credits_unstash(q, &lane) : NULL;
        if (!p) {
            if (!(p = dequeue(f, q)))
                return;
            lane = p->qid;
            if (!q->patch)
                p = target_egress(f, q, p);
        }
        if (p && q->credits)
            p = credits_take(f, q, p, lane);
        if (p) {
            transmit(f, q, p, start);
            start = q->free_at;
        }
    }
}

/* A faster link finishes sooner what it is about to send; otherwise a new rate holds from the next packet. */
void port_rate_changed(struct fabric *f, struct port *q, uint64_t old_rate)
{
    uint64_t rate = q->out.set.rate_bps;
    if (q->free_at <= f->now || old_rate == 0 || (rate && rate <= old_rate))
        return;
    unsigned __int128 left = (unsigned __int128)(q->free_at - f->now) * old_rate;
    q->free_at = f->now + (rate ? (uint64_t)(left / rate) : 0);
    if (q->timer.pos != NO_POS)
        timer_arm(f, &q->timer, q->free_at, next_order(f));
}

/* Empties the queues (stop, restart, another program). */
void port_flush(struct fabric *f, struct port *q)
{
    struct packet *p;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++) {
        struct queue *queue = &q->queues[i];
        while ((p = list_pop(&queue->list))) {
            q->sw->stats.drops[PF_S_FLUSHED]++;
            if (q->sw->pfc_classes)
                pfc_release(f, q->sw, p);
            packet_drop_phv(q->sw, p);
            packet_free(f, p);
        }
        queue->packets = queue->bytes = 0;
    }
    if (q->credits)
        credits_flush(f, q);
    q->packets = q->bytes = 0;
    timer_cancel(f, &q->timer);
}
