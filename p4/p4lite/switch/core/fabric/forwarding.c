/* What simple_switch does around the program: the order of clone, digest, resubmit, multicast, drop and
 * unicast, and what each copy keeps (p4-target.md; behavioral-model docs/simple_switch.md). */
#include <stdlib.h>

#include "internal.h"

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

/* A copy of `p` with its headers and metadata, sharing its bytes. */
static struct packet *copy_with_phv(struct fabric *f, struct sw *s, const struct packet *p)
{
    struct p4_phv *phv = phv_get(s);
    struct packet *copy = phv ? packet_share(f, p) : NULL;
    if (!copy) {
        if (phv)
            phv_put(s, phv);
        copy_missed(s, PF_S_MEMORY, 1);
        return NULL;
    }
    s->program->phv_copy(phv, p->phv);
    clear_requests(phv);
    copy->phv = phv;
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
    struct p4_phv *phv = phv_get(s);
    struct packet *copy = phv ? packet_share(f, p) : NULL;
    if (!copy) {
        if (phv)
            phv_put(s, phv);
        copy_missed(s, PF_S_MEMORY, 1);
        return;
    }
    s->stats.ingress_clones++;
    copy->phv = phv;
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

static void parse(struct fabric *f, struct sw *s, struct packet *p, uint32_t bytes)
{
    const struct p4_program *program = s->program;
    struct p4_phv *phv = p->phv;
    phv->packet_length = phv->ingress_length = p->len;
    p4_set(program, phv, P4F_PACKET_LENGTH, p->len);
    s->instance->now_ns = f->now;
    program->parse(s->instance, phv, p->data, bytes);
}

/* Of a packet with missing bytes. Its headers are stored, so that a parser reads beyond them only where one is corrupt:
 * it is given zeros then. */
static void parse_head(struct fabric *f, struct sw *s, struct packet *p)
{
    parse(f, s, p, packet_head(p));
    if (!p->phv->parser_error || p->loops) /* what a PHV keeps from an earlier round cannot be had again */
        return;
    fresh_phv(f, s, p);
    packet_reveal(f, p);
    parse(f, s, p, packet_head(p));
}

static void ingress(struct fabric *f, struct sw *s, struct port *in, struct packet *p)
{
    const struct p4_program *program = s->program;
    struct p4_instance *instance = s->instance;
    struct p4_phv *phv = p->phv;
    uint32_t length = p->len;
    s->stats.ingress++;
    if (p->missing)
        parse_head(f, s, p);
    else
        parse(f, s, p, length);
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
    if (f->trace)
        trace_packet(f, "rx", in, p);
    if (in->pcap)
        pcap_packet(f, in, p, 0);
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
void target_again(struct fabric *f, struct packet *p)
{
    struct port *in = p->at;
    if (in->sw->state != PF_RUNNING) {
        port_drop(f, in, p, PF_D_NOT_RUNNING);
        return;
    }
    ingress(f, in->sw, in, p);
}

/* Runs egress on a packet that left its queue. Returns it deparsed, or NULL if it does not go out here. */
struct packet *target_egress(struct fabric *f, struct port *q, struct packet *p)
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
        packet_truncate(p, phv->truncate_to);
    packet_drop_phv(s, p);
    return p;
}
