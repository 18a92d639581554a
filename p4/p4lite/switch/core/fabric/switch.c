/* Switches: what simple_switch does around the program (p4-target.md; behavioral-model docs/simple_switch.md), with queues of
 * strict priority in front of one transmitter per port. */
#include "switch.h"

#include <stdlib.h>

static void port_serve(struct fabric *f, struct port *q, uint64_t start);

/* The transmitter is free. The loop may be late; the transmitter goes on from when it was due, so that the rate holds. */
void port_due(struct fabric *f, struct timer *t)
{
    uint64_t due = t->time;
    port_serve(f, CONTAINER(struct port, timer, t), due);
    if (t->time == due) /* it was not armed for the next packet */
        timer_cancel(f, t);
}

/* Grows a zero-filled array so that `index` is in it. */
bool reserve(void **array, uint32_t *size, uint64_t index, size_t element)
{
    if (index < *size)
        return true;
    uint64_t wanted = *size ? *size : 16;
    while (wanted <= index)
        wanted *= 2;
    uint8_t *grown = realloc(*array, wanted * element);
    if (!grown)
        return false;
    memset(grown + *size * element, 0, (wanted - *size) * element);
    *array = grown;
    *size = (uint32_t)wanted;
    return true;
}

/* The port with this number, made on the spot: programs may send to ports that were not added. */
struct port *switch_port(struct sw *s, uint32_t number)
{
    if (number < s->ports_size && s->ports[number])
        return s->ports[number];
    struct port *q = number <= MAX_PORT ? calloc(1, sizeof *q) : NULL;
    if (!q || !reserve((void **)&s->ports, &s->ports_size, number, sizeof *s->ports)) {
        free(q);
        return NULL;
    }
    q->sw = s;
    q->number = number;
    q->implicit = true;
    q->timer.pos = NO_POS;
    q->timer.due = port_due;
    q->storm.pos = NO_POS;
    q->storm.due = storm_due;
    linkdir_init(s->fabric, &q->out, q, NULL);
    linkdir_init(s->fabric, &q->host_in, q, q);
    q->in = &q->host_in;
    for (uint32_t i = 0; i < PF_MAX_PRIORITIES; i++)
        q->queues[i].limit_packets = 64;
    s->ports[number] = q;
    return q;
}

static void switch_drop(struct fabric *f, struct sw *s, const struct port *q, struct packet *p, enum pf_switch_drop why)
{
    static const char *const names[] = {PF_SWITCH_DROP_REASONS(PF_TRACED_DROP)};
    s->stats.drops[why]++;
    if (f->trace)
        trace_packet(f, names[why], q, p);
    packet_drop_phv(s, p);
    packet_free(f, p);
}

static inline uint64_t microseconds(const struct fabric *f)
{
    return f->now / 1000;
}

/* Flags of a new packet: what BMv2 calls clearing its registers, except the length. */
static void clear_requests(struct p4_phv *phv)
{
    phv->clone_session = 0;
    phv->clone_field_list = 0;
    phv->digest = 0;
    phv->resubmit = 0;
    phv->recirculate = 0;
    phv->truncate_to = P4_NO_TRUNCATE;
}

/* -- queues --------------------------------------------------------------------------------------------------------- */

/* Tail drop at the queue's limits, then at the port's. The packet counts with its length before egress. */
static void port_enqueue(struct fabric *f, struct port *q, struct packet *p, uint32_t priority)
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
    q->waiting |= (uint8_t)(1u << priority);
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

/* -- ingress: the order of clone, digest, resubmit, multicast, drop and unicast, and what each copy keeps ----------- */

static void enqueue(struct fabric *f, struct sw *s, struct packet *p, uint64_t number)
{
    const struct p4_program *program = s->program;
    struct port *q = number <= MAX_PORT ? switch_port(s, (uint32_t)number) : NULL;
    if (!q) {
        switch_drop(f, s, s->ports[p->ingress_port], p, PF_S_NO_PORT);
        return;
    }
    uint64_t priority = p4_get(program, p->phv, P4F_PRIORITY);
    if (priority >= s->config.priority_queues) {
        switch_drop(f, s, q, p, PF_S_PRIORITY);
        return;
    }
    if (program->queueing_metadata) {
        p4_set(program, p->phv, P4F_ENQ_TIMESTAMP, microseconds(f));
        p4_set(program, p->phv, P4F_ENQ_QDEPTH, q->queues[priority].packets);
    }
    p->queue_bytes = p->phv->packet_length;
    port_enqueue(f, q, p, (uint32_t)priority);
}

static void copy_missed(struct sw *s, enum pf_switch_drop why, uint64_t count)
{
    s->stats.drops[why] += count;
    s->stats.copies_missed += count;
}

/* A packet whose copies go on in its place. */
static void absorb(struct fabric *f, struct sw *s, struct packet *p)
{
    s->stats.absorbed++;
    packet_drop_phv(s, p);
    packet_free(f, p);
}

/* A copy of `p` with an empty PHV, sharing its bytes. */
static struct packet *copy_plain(struct fabric *f, struct sw *s, const struct packet *p)
{
    struct p4_phv *phv = phv_get(s);
    struct packet *copy = phv ? packet_share(f, p) : NULL;
    if (copy)
        copy->phv = phv;
    else if (phv)
        phv_put(s, phv);
    if (!copy)
        copy_missed(s, PF_S_MEMORY, 1);
    return copy;
}

/* The same with its headers and metadata. */
static struct packet *copy_with_phv(struct fabric *f, struct sw *s, const struct packet *p)
{
    struct packet *copy = copy_plain(f, s, p);
    if (copy) {
        s->program->phv_copy(copy->phv, p->phv);
        clear_requests(copy->phv);
    }
    return copy;
}

static void replicate(struct fabric *f, struct sw *s, const struct packet *p, const struct pf_replica *replicas,
                      uint32_t count, uint32_t truncate_to)
{
    for (uint32_t i = 0; i < count; i++) {
        struct packet *copy = copy_with_phv(f, s, p);
        if (!copy) { /* counted once; those after it are not even tried */
            copy_missed(s, PF_S_MEMORY, count - i - 1);
            return;
        }
        s->stats.replicas++;
        copy->phv->truncate_to = truncate_to;
        p4_set(s->program, copy->phv, P4F_EGRESS_RID, replicas[i].rid);
        enqueue(f, s, copy, replicas[i].port);
    }
}

static bool multicast(struct fabric *f, struct sw *s, const struct packet *p, uint64_t id, uint32_t truncate_to)
{
    if (id >= s->groups_size || !s->groups[id].present)
        return false;
    replicate(f, s, p, s->groups[id].replicas, s->groups[id].count, truncate_to);
    return true;
}

/* Consumes `copy`. */
static void send_clone(struct fabric *f, struct sw *s, struct packet *copy, const struct session *session)
{
    copy->phv->truncate_to = session->truncate_to;
    if (session->group >= 0 && !multicast(f, s, copy, (uint64_t)session->group, session->truncate_to))
        copy_missed(s, PF_S_MCAST_GROUP, 1);
    if (session->own.count)
        replicate(f, s, copy, session->own.replicas, session->own.count, session->truncate_to);
    if (session->port >= 0) {
        enqueue(f, s, copy, (uint64_t)session->port);
        return;
    }
    absorb(f, s, copy);
}

static const struct session *clone_session(struct sw *s, struct p4_phv *phv)
{
    uint32_t id = phv->clone_session & P4_CLONE_MASK;
    if (!(phv->clone_session & P4_CLONE_VALID))
        return NULL;
    phv->clone_session = 0;
    if (id >= s->sessions_size || !s->sessions[id].present) {
        copy_missed(s, PF_S_CLONE_SESSION, 1);
        return NULL;
    }
    return &s->sessions[id];
}

/* The original bytes, parsed again; of the metadata only the field list survives. */
static void clone_at_ingress(struct fabric *f, struct sw *s, struct packet *p, uint32_t ingress_length)
{
    const struct p4_program *program = s->program;
    const struct session *session = clone_session(s, p->phv);
    if (!session)
        return;
    struct packet *copy = copy_plain(f, s, p);
    if (!copy)
        return;
    struct p4_phv *phv = copy->phv;
    s->stats.ingress_clones++;
    program->phv_reset(phv);
    phv->packet_length = phv->ingress_length = ingress_length;
    p4_set(program, phv, P4F_INGRESS_PORT, p->ingress_port);
    program->parse(s->instance, phv, copy->data, packet_head(copy));
    program->reset_metadata(phv);
    program->copy_field_list(p->phv->clone_field_list, phv, p->phv);
    p4_set(program, phv, P4F_INSTANCE_TYPE, IT_INGRESS_CLONE);
    send_clone(f, s, copy, session);
}

/* Headers as they are now, neither deparsed nor parsed; of the metadata only the field list survives. */
static void clone_at_egress(struct fabric *f, struct sw *s, struct packet *p)
{
    const struct p4_program *program = s->program;
    const struct session *session = clone_session(s, p->phv);
    if (!session)
        return;
    if (p->loops >= s->config.loop_limit) {
        copy_missed(s, PF_S_LOOP_LIMIT, 1);
        return;
    }
    struct packet *copy = copy_with_phv(f, s, p);
    if (!copy)
        return;
    s->stats.egress_clones++;
    copy->loops++;
    program->reset_metadata(copy->phv);
    program->copy_field_list(p->phv->clone_field_list, copy->phv, p->phv);
    p4_set(program, copy->phv, P4F_INSTANCE_TYPE, IT_EGRESS_CLONE);
    send_clone(f, s, copy, session);
}

static void digest(struct fabric *f, struct sw *s, const struct packet *p)
{
    uint8_t out[4096];
    int64_t len = s->program->digest(p->phv->digest, p->phv, out, sizeof out);
    if (len < 0)
        return;
    s->stats.digests++;
    notify(f, PF_N_DIGEST, s->config.device_id, p->phv->digest, 0, out, (uint64_t)len);
}

/* Another round through the parser with a fresh PHV that keeps field list `list`. */
static void go_again(struct fabric *f, struct sw *s, struct port *q, struct packet *p, uint32_t list,
                     enum instance_type type)
{
    const struct p4_program *program = s->program;
    if (p->loops >= s->config.loop_limit) {
        switch_drop(f, s, q, p, PF_S_LOOP_LIMIT);
        return;
    }
    struct p4_phv *fresh = phv_get(s);
    if (!fresh) {
        switch_drop(f, s, q, p, PF_S_MEMORY);
        return;
    }
    program->phv_reset(fresh);
    program->copy_field_list(list, fresh, p->phv);
    p4_set(program, fresh, P4F_INSTANCE_TYPE, type);
    phv_put(s, p->phv);
    p->phv = fresh;
    p->loops++;
    p->at = q;
    list_push(&f->again, p);
}

/* A PHV for a packet that has come in. */
static void fresh_phv(struct fabric *f, struct sw *s, struct packet *p)
{
    s->program->phv_reset(p->phv);
    p4_set(s->program, p->phv, P4F_INGRESS_PORT, p->ingress_port);
    p4_set(s->program, p->phv, P4F_INGRESS_TIMESTAMP, microseconds(f));
}

static void parse(struct fabric *f, struct sw *s, struct packet *p)
{
    const struct p4_program *program = s->program;
    struct p4_phv *phv = p->phv;
    phv->packet_length = phv->ingress_length = p->len;
    p4_set(program, phv, P4F_PACKET_LENGTH, p->len);
    s->instance->now_ns = f->now;
    program->parse(s->instance, phv, p->data, packet_head(p));
}

/* Headers are stored, so that a parser seldom reads beyond them: where one is corrupt, or where many headers come before
 * payload that is borrowed. What a PHV keeps from an earlier round cannot be had again, so that then parsing must not fail
 * for want of bytes. False: no memory. */
static bool parse_revealing(struct fabric *f, struct sw *s, struct packet *p)
{
    bool whole = s->program->payload_checksums || (p->borrowed && p->loops);
    if (p->missing && whole && !packet_reveal(f, p))
        return false;
    parse(f, s, p);
    if (!p->missing || !p->phv->parser_error || p->loops)
        return true;
    fresh_phv(f, s, p);
    if (!packet_reveal(f, p))
        return false;
    parse(f, s, p);
    return true;
}

static void ingress(struct fabric *f, struct sw *s, struct port *in, struct packet *p)
{
    const struct p4_program *program = s->program;
    struct p4_instance *instance = s->instance;
    struct p4_phv *phv = p->phv;
    uint32_t length = p->len;
    s->stats.ingress++;
    if (!parse_revealing(f, s, p)) {
        switch_drop(f, s, in, p, PF_S_MEMORY);
        return;
    }
    p4_set(program, phv, P4F_PARSER_ERROR, phv->parser_error);
    p4_set(program, phv, P4F_CHECKSUM_ERROR, phv->checksum_error);
    s->stats.parser_errors += phv->parser_error != 0;
    program->ingress(instance, phv);

    uint64_t egress_spec = p4_get(program, phv, P4F_EGRESS_SPEC);
    uint64_t group = p4_get(program, phv, P4F_MCAST_GRP);
    if (phv->clone_session)
        clone_at_ingress(f, s, p, length);
    if (phv->digest)
        digest(f, s, p);
    if (phv->resubmit) {
        s->stats.resubmits++;
        go_again(f, s, in, p, phv->resubmit, IT_RESUBMIT);
    } else if (group) {
        p4_set(program, phv, P4F_INSTANCE_TYPE, IT_REPLICATION);
        if (!multicast(f, s, p, group, P4_NO_TRUNCATE)) {
            switch_drop(f, s, in, p, PF_S_MCAST_GROUP);
            return;
        }
        absorb(f, s, p);
    } else if (egress_spec == s->config.drop_port) {
        switch_drop(f, s, in, p, PF_S_INGRESS);
    } else {
        p4_set(program, phv, P4F_INSTANCE_TYPE, IT_NORMAL);
        enqueue(f, s, p, egress_spec);
    }
}

/* A packet from outside reaches port `in`. */
void target_receive(struct fabric *f, struct port *in, struct packet *p)
{
    struct sw *s = in->sw;
    if (s->state != PF_RUNNING) {
        port_drop(f, in, p, PF_D_NOT_RUNNING);
        return;
    }
    if (in->pfc && pfc_receive(f, in, p))
        return;
    if (in->credits) {
        if (credits_receive(f, in, p))
            return;
        credits_arrived(in, p);
    }
    in->stats.rx_packets++;
    in->stats.rx_bytes += p->len;
    s->stats.received++;
    observe(f, "rx", in, p, 0);
    p->ingress_port = in->number;
    p->loops = 0;
    if (in->patch) {
        p->queue_bytes = p->len;
        port_enqueue(f, in->patch, p, 0);
        return;
    }
    if (!s->program || !(p->phv = phv_get(s))) {
        switch_drop(f, s, in, p, s->program ? PF_S_MEMORY : PF_S_NO_PROGRAM);
        return;
    }
    fresh_phv(f, s, p);
    ingress(f, s, in, p);
}

/* A resubmitted or recirculated packet: as in simple_switch its ingress_port and timestamp are 0 unless preserved. */
static void target_again(struct fabric *f, struct packet *p)
{
    struct port *in = p->at;
    if (in->sw->state != PF_RUNNING) {
        port_drop(f, in, p, PF_D_NOT_RUNNING);
        return;
    }
    ingress(f, in->sw, in, p);
}

/* -- egress and transmission ---------------------------------------------------------------------------------------- */

/* Runs egress on a packet that left its queue. Returns it deparsed, or NULL if it does not go out here. */
static struct packet *target_egress(struct fabric *f, struct port *q, struct packet *p)
{
    struct sw *s = q->sw;
    const struct p4_program *program = s->program;
    struct p4_phv *phv = p->phv;
    s->stats.egress++;
    s->instance->now_ns = f->now;
    p4_set(program, phv, P4F_EGRESS_TIMESTAMP, microseconds(f));
    if (program->queueing_metadata) {
        p4_set(program, phv, P4F_DEQ_TIMEDELTA, microseconds(f) - p4_get(program, phv, P4F_ENQ_TIMESTAMP));
        p4_set(program, phv, P4F_DEQ_QDEPTH, q->queues[p->qid].packets);
        p4_set(program, phv, P4F_QID, p->qid);
    }
    p4_set(program, phv, P4F_EGRESS_PORT, q->number);
    p4_set(program, phv, P4F_EGRESS_SPEC, (uint64_t)s->config.drop_port + 1);
    p4_set(program, phv, P4F_PACKET_LENGTH, phv->packet_length);
    program->egress(s->instance, phv);
    if (phv->clone_session)
        clone_at_egress(f, s, p);
    if (p4_get(program, phv, P4F_EGRESS_SPEC) == s->config.drop_port) {
        switch_drop(f, s, q, p, PF_S_EGRESS);
        return NULL;
    }
    uint32_t headers = program->header_length(phv);
    uint32_t payload_len = packet_stored(p) - phv->payload_offset;
    if (!packet_make_room(f, p, phv->payload_offset, headers)) {
        switch_drop(f, s, q, p, PF_S_TOO_LONG);
        return NULL;
    }
    uint8_t *payload = p->data + headers;
    int64_t written = program->deparse(s->instance, phv, payload, payload_len, p->data, headers);
    if (written < 0 || (uint64_t)written > headers) {
        switch_drop(f, s, q, p, PF_S_TOO_LONG);
        return NULL;
    }
    if ((uint64_t)written < headers) { /* keep headers and payload together */
        uint32_t gap = headers - (uint32_t)written;
        memmove(p->data + gap, p->data, (size_t)written);
        p->data += gap;
        p->len -= gap;
    }
    if (phv->recirculate) {
        s->stats.recirculations++;
        go_again(f, s, q, p, phv->recirculate, IT_RECIRC);
        return NULL;
    }
    if (phv->truncate_to < p->len)
        packet_truncate(f, p, phv->truncate_to);
    packet_drop_phv(s, p);
    return p;
}

/* The next packet; NULL when all that wait are of paused priorities, or of such without credit. */
static struct packet *dequeue(struct fabric *f, struct port *q)
{
    uint32_t ready = q->waiting & ~(q->pfc ? q->pfc->paused : 0u), i;
    for (;; ready &= ~(1u << i)) {
        if (!ready)
            return NULL;
        i = 31u - (uint32_t)__builtin_clz(ready);
        if (!q->credits || !credits_short(f, q, i, q->queues[i].list.head))
            break;
    }
    struct packet *p = queue_pop(q, i);
    if (q->sw->pfc_classes)
        pfc_release(f, q->sw, p);
    if (p->credit_port)
        credits_release(f, p);
    return p;
}

/* A pause frame or an update of credits goes before all packets, and only the peer's MAC takes it. */
static bool transmit_control(struct fabric *f, struct port *q, uint64_t start)
{
    bool pause = q->pfc && q->pfc->due;
    struct packet *p = pause ? pfc_frame(f, q) : credits_frame(f, q);
    if (!p)
        return false;
    observe(f, pause ? "tx_pause" : "tx_credits", q, p, 1);
    q->free_at = start + (pause ? linkdir_serialise(&q->out, &q->out.rate_rest, p->len) : credits_frame_time(q));
    linkdir_send(f, &q->out, p, q->free_at, false);
    return true;
}

static void transmit(struct fabric *f, struct port *q, struct packet *p, uint64_t start)
{
    q->stats.tx_packets++;
    q->stats.tx_bytes += p->len;
    q->sw->stats.transmitted++;
    observe(f, "tx", q, p, 1);
    q->free_at = start + linkdir_serialise(&q->out, &q->out.rate_rest, p->len);
    switch (q->peer_kind) {
    case PEER_CPU:
        if (p->missing && !packet_reveal(f, p)) {
            port_drop(f, q, p, PF_D_MEMORY);
            break;
        }
        notify(f, PF_N_PACKET_IN, q->sw->config.device_id, q->number, 0, p->data, p->len);
        packet_free(f, p);
        break;
    case PEER_NONE:
        port_drop(f, q, p, PF_D_NO_PEER);
        break;
    default:
        linkdir_send(f, &q->out, p, q->free_at, false);
    }
}

/* Sends while the transmitter is free: the highest priority first; egress runs when a packet leaves its queue.
 * The first transmission begins at `start`, which may lie before now. */
static void port_serve(struct fabric *f, struct port *q, uint64_t start)
{
    while ((q->packets || port_has_more(q)) && q->sw->state == PF_RUNNING) {
        if (q->free_at > f->now) {
            timer_arm(f, &q->timer, q->free_at, next_order(f));
            return;
        }
        if ((q->pfc && q->pfc->due) || (q->credits && q->credits->due)) {
            if (transmit_control(f, q, start))
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
        while ((p = queue_pop(q, i))) {
            q->sw->stats.drops[PF_S_FLUSHED]++;
            if (q->sw->pfc_classes)
                pfc_release(f, q->sw, p);
            packet_drop_phv(q->sw, p);
            packet_free(f, p);
        }
    }
    if (q->credits)
        credits_flush(f, q);
    timer_cancel(f, &q->timer);
}

/* Work that an event left behind at the same instant: ports with new packets first, in the order in which
 * they got them, then resubmitted and recirculated packets. */
void drain(struct fabric *f)
{
    for (;;) {
        struct port *q = f->kicked_head;
        if (q) {
            f->kicked_head = q->next_kicked;
            if (!f->kicked_head)
                f->kicked_tail = NULL;
            q->kicked = false;
            port_serve(f, q, f->now);
            continue;
        }
        struct packet *p = list_pop(&f->again);
        if (!p)
            return;
        target_again(f, p);
    }
}

/* -- packets from outside ------------------------------------------------------------------------------------------- */

/* A packet from outside, which needs no link where that has neither time nor effects. */
void port_take_in(struct fabric *f, struct port *q, struct packet *p, uint64_t at)
{
    const struct linkdir *d = &q->host_in;
    if (d->up && !d->impaired && !d->set.rate_bps && !d->set.delay_ns && !q->credits)
        target_receive(f, q, p);
    else
        host_sends(f, q, p, at);
}

/* The next frame of a source is due. */
void source_due(struct fabric *f, struct timer *t)
{
    struct source *s = CONTAINER(struct source, timer, t);
    uint64_t at = t->time;
    uint32_t i = s->index;
    s->index = i + 1 == s->nframes ? 0 : i + 1;
    if (--s->left)
        timer_arm(f, &s->timer, at + s->interval_ns, next_order(f));
    else
        timer_cancel(f, &s->timer);
    struct packet *p = packet_new(f, s->lengths[i]);
    if (!p) {
        s->port->stats.drops[PF_D_MEMORY]++;
        return;
    }
    memcpy(p->data, s->frames[i]->mem, s->lengths[i]);
    p->len = s->lengths[i];
    port_take_in(f, s->port, p, at);
}

void source_free(struct fabric *f, struct source *s)
{
    timer_cancel(f, &s->timer);
    for (uint32_t i = 0; i < s->nframes; i++)
        free(s->frames[i]);
    free(s->frames);
    free(s->lengths);
    free(s);
}
