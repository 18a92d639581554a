/* A program against pipeline.h written by hand, so that tests of the fabric need neither compiler nor codegen.
 *
 * Header (40 bytes, then payload): 0 op, 1 argument (port, group), 2 priority, 3 flags (1: stamp), 4 second argument
 * (session, length). Egress stamps what the target told it: 5 instance_type, 6 ingress_port, 7 egress_port,
 * 8 egress_rid, 10 enq_qdepth, 12 deq_qdepth, 14 qid, 15 the preserved metadata, 16 packet_length,
 * 20 deq_timedelta, 24 enq_timestamp, 32 egress_spec at the start, 34 rounds through recirculation.
 *
 * ROUTED goes to the port of byte 1, as all ops do; the next switch finds there what byte 16 says here, and so on.
 *
 * Any other op (the first byte of a MAC address): a patch cable between ports 1 and 2, 3 and 4, and so on. */
#include <stdlib.h>

#include "pipeline.h"

enum { HEADER = 40 };
enum op {
    FORWARD, DROP, MULTICAST, CLONE, EGRESS_CLONE, RESUBMIT, RECIRCULATE, DIGEST, TRUNCATE, EGRESS_DROP,
    RESUBMIT_FOREVER, RECIRCULATE_FOREVER, CLONE_FOREVER, CLONE_AND_DROP, SHRINK, GROW, ROUTED, PATCH
};
enum { NORMAL, INGRESS_CLONE, EGRESS_CLONED, RECIRCULATED = 4, RESUBMITTED = 6 };

struct phv {
    struct p4_phv head;
    struct metadata {
        uint64_t ingress_timestamp, egress_timestamp, enq_timestamp;
        uint32_t packet_length, enq_qdepth, deq_timedelta, deq_qdepth, ingress_port, egress_spec, egress_port,
            instance_type, parser_error, mcast_grp, egress_rid;
        uint8_t priority, qid, checksum_error, kept;
    } meta;
    uint8_t valid, extra;
    uint8_t header[HEADER];
};

static void put(uint8_t *at, unsigned bytes, uint64_t value)
{
    while (bytes--) {
        at[bytes] = (uint8_t)value;
        value >>= 8;
    }
}

static struct p4_instance *create(const struct p4_config *config);

static void destroy(struct p4_instance *instance)
{
    free(instance);
}

static void restart(struct p4_instance *instance)
{
    instance->generation++;
}

static void phv_reset(struct p4_phv *phv)
{
    memset(phv, 0, sizeof(struct phv));
    phv->truncate_to = P4_NO_TRUNCATE;
}

static void phv_copy(struct p4_phv *dst, const struct p4_phv *src)
{
    memcpy(dst, src, sizeof(struct phv));
}

static void reset_metadata(struct p4_phv *phv)
{
    memset(&((struct phv *)phv)->meta, 0, sizeof(struct metadata));
}

static void parse(struct p4_instance *instance, struct p4_phv *phv, const uint8_t *data, uint32_t len)
{
    struct phv *v = (struct phv *)phv;
    (void)instance;
    if (len < HEADER) {
        phv->parser_error = 1;
        phv->payload_offset = 0;
        return;
    }
    memcpy(v->header, data, HEADER);
    v->valid = 1;
    phv->payload_offset = HEADER;
}

static void ingress(struct p4_instance *instance, struct p4_phv *phv)
{
    struct phv *v = (struct phv *)phv;
    unsigned argument = v->header[1], second = v->header[4];
    v->meta.egress_spec = argument;
    v->meta.priority = v->header[2] & 7;
    v->meta.kept = v->meta.instance_type == NORMAL ? 0x5a : v->meta.kept;
    if (!v->valid) {
        v->meta.egress_spec = instance->drop_port;
        return;
    }
    if (v->header[0] >= PATCH) {
        v->meta.egress_spec = ((v->meta.ingress_port - 1) ^ 1) + 1;
        v->meta.priority = 0;
        return;
    }
    switch (v->header[0]) {
    case ROUTED:
        v->header[1] = v->header[16];
        memmove(v->header + 16, v->header + 17, HEADER - 17);
        break;
    case DROP: v->meta.egress_spec = instance->drop_port; break;
    case MULTICAST: v->meta.mcast_grp = argument; break;
    case CLONE_AND_DROP: v->meta.egress_spec = instance->drop_port; /* fall through */
    case CLONE:
        phv->clone_session = second | P4_CLONE_VALID;
        phv->clone_field_list = 1;
        v->header[39] = 0xee; /* a change that the clone must not see */
        break;
    case RESUBMIT:
        if (v->meta.instance_type != RESUBMITTED)
            phv->resubmit = 1;
        break;
    case RESUBMIT_FOREVER: phv->resubmit = 1; break;
    case DIGEST: phv->digest = 1; break;
    case TRUNCATE: phv->truncate_to = second; break;
    default: break;
    }
}

static void egress(struct p4_instance *instance, struct p4_phv *phv)
{
    struct phv *v = (struct phv *)phv;
    uint8_t *h = v->header;
    if (!v->valid || h[0] >= PATCH)
        return;
    if (h[3] & 1) {
        const struct metadata *m = &v->meta;
        h[5] = (uint8_t)m->instance_type;
        h[6] = (uint8_t)m->ingress_port;
        h[7] = (uint8_t)m->egress_port;
        put(h + 8, 2, m->egress_rid);
        put(h + 10, 2, m->enq_qdepth);
        put(h + 12, 2, m->deq_qdepth);
        h[14] = m->qid;
        h[15] = m->kept;
        put(h + 16, 4, m->packet_length);
        put(h + 20, 4, m->deq_timedelta);
        put(h + 24, 8, m->enq_timestamp);
        put(h + 32, 2, m->egress_spec);
    }
    switch (h[0]) {
    case EGRESS_CLONE:
        if (v->meta.instance_type == EGRESS_CLONED)
            break;
        /* fall through */
    case CLONE_FOREVER:
        phv->clone_session = h[4] | P4_CLONE_VALID;
        phv->clone_field_list = 1;
        break;
    case EGRESS_DROP: v->meta.egress_spec = instance->drop_port; break;
    case RECIRCULATE:
        if (h[35])
            break;
        /* fall through */
    case RECIRCULATE_FOREVER:
        h[35]++;
        phv->recirculate = 1;
        break;
    case SHRINK: v->valid = 0; break;
    case GROW: v->extra = 200; break;
    default: break;
    }
}

static uint32_t header_length(const struct p4_phv *phv)
{
    const struct phv *v = (const struct phv *)phv;
    return v->valid ? HEADER + 2u * v->extra : 0;
}

static int64_t deparse(struct p4_instance *instance, struct p4_phv *phv, const uint8_t *payload, uint32_t payload_len,
                       uint8_t *out, uint32_t cap)
{
    struct phv *v = (struct phv *)phv;
    uint32_t length = header_length(phv);
    (void)instance;
    (void)payload;
    (void)payload_len;
    if (length > cap)
        return -1;
    if (length) {
        memcpy(out, v->header, HEADER);
        memset(out + HEADER, 0xaa, length - HEADER);
    }
    return length;
}

static void copy_field_list(uint32_t id, struct p4_phv *dst, const struct p4_phv *src)
{
    if (id == 1)
        ((struct phv *)dst)->meta.kept = ((const struct phv *)src)->meta.kept;
}

static int64_t digest(uint32_t id, const struct p4_phv *phv, uint8_t *out, uint32_t cap)
{
    if (id != 1 || cap < 4)
        return -1;
    memcpy(out, ((const struct phv *)phv)->header, 4);
    return 4;
}

#define FIELD(member, bits)                                                                                             \
    {                                                                                                                  \
        (int32_t)offsetof(struct phv, meta.member), (uint8_t)sizeof(((struct phv *)0)->meta.member), bits              \
    }

static const struct p4_program program = {
    .abi = P4LITE_ABI,
    .phv_size = sizeof(struct phv),
    .max_header_bytes = HEADER + 400,
    .queueing_metadata = 1,
    .name = "hand",
    .fields =
        {
            [P4F_INGRESS_PORT] = FIELD(ingress_port, 9),
            [P4F_EGRESS_SPEC] = FIELD(egress_spec, 9),
            [P4F_EGRESS_PORT] = FIELD(egress_port, 9),
            [P4F_INSTANCE_TYPE] = FIELD(instance_type, 32),
            [P4F_PACKET_LENGTH] = FIELD(packet_length, 32),
            [P4F_PARSER_ERROR] = FIELD(parser_error, 32),
            [P4F_CHECKSUM_ERROR] = FIELD(checksum_error, 1),
            [P4F_PRIORITY] = FIELD(priority, 3),
            [P4F_MCAST_GRP] = FIELD(mcast_grp, 16),
            [P4F_EGRESS_RID] = FIELD(egress_rid, 16),
            [P4F_INGRESS_TIMESTAMP] = FIELD(ingress_timestamp, 48),
            [P4F_EGRESS_TIMESTAMP] = FIELD(egress_timestamp, 48),
            [P4F_ENQ_TIMESTAMP] = FIELD(enq_timestamp, 48),
            [P4F_ENQ_QDEPTH] = FIELD(enq_qdepth, 19),
            [P4F_DEQ_TIMEDELTA] = FIELD(deq_timedelta, 32),
            [P4F_DEQ_QDEPTH] = FIELD(deq_qdepth, 19),
            [P4F_QID] = FIELD(qid, 8),
        },
    .create = create,
    .destroy = destroy,
    .restart = restart,
    .phv_init = phv_reset,
    .phv_reset = phv_reset,
    .phv_copy = phv_copy,
    .reset_metadata = reset_metadata,
    .parse = parse,
    .ingress = ingress,
    .egress = egress,
    .header_length = header_length,
    .deparse = deparse,
    .copy_field_list = copy_field_list,
    .digest = digest,
};

static struct p4_instance *create(const struct p4_config *config)
{
    struct p4_instance *instance = calloc(1, sizeof *instance);
    if (!instance)
        return NULL;
    instance->program = &program;
    instance->host = config->host;
    instance->lock = config->lock;
    instance->drop_port = config->drop_port ? config->drop_port : 511;
    return instance;
}

__attribute__((visibility("default"))) const struct p4_program *p4lite_program(void);

const struct p4_program *p4lite_program(void)
{
    return &program;
}
