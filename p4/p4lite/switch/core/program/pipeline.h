/* The C interface between the fabric core and a compiled P4 program.
 *
 * A program object (a shared object generated from BMv2 JSON) exports
 *     const struct p4_program *p4lite_program(void);
 * The fabric core drives packets through it in the order of simple_switch.md; everything that belongs to
 * the target (traffic manager, clones, replication, drop port, timestamps) is the core's.
 *
 * Life of a packet:
 *   phv_reset(phv); set p4_phv.ingress_length and .packet_length; set intrinsic fields with p4_set();
 *   parse(inst, phv, data, len)   parser, then checksum verification; never drops, fills .parser_error,
 *                                 .checksum_error, .payload_offset; the core copies the two errors into
 *                                 P4F_PARSER_ERROR and P4F_CHECKSUM_ERROR (BMv2 does that before ingress)
 *   ingress(inst, phv)            then the core reads the flags below and the fields egress_spec, mcast_grp
 *   egress(inst, phv)             idem
 *   deparse(inst, phv, payload, payload_len, out, cap)   checksum update, then headers only, no payload
 * The PHV never points into the packet: headers are copied out at extraction. So `out` may be the packet's
 * own buffer, ending where the payload begins (header_length() tells how much room that takes).
 *
 * Threads: one instance is used by one thread at a time, under its lock. The core takes p4_lock_packets()
 * once per batch; every control operation (control.c) takes p4_lock_control() itself, so
 * a packet sees a table before or after an update, never between. Both kinds may run in different threads.
 * A core that already holds the lock must not call control operations. */
#ifndef P4LITE_PIPELINE_H
#define P4LITE_PIPELINE_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#define P4LITE_ABI 2u

/* Bit 15 of p4_phv.clone_session says that a clone was asked for; the low 15 bits are the session. */
#define P4_CLONE_VALID 0x8000u
#define P4_CLONE_MASK 0x7fffu
#define P4_NO_TRUNCATE UINT32_MAX

/* Head of every PHV; the program's own metadata and headers follow. All of it is plain data. */
struct p4_phv {
    uint32_t packet_length;    /* "register 0" of simple_switch: follows header validity */
    uint32_t ingress_length;   /* what counters and meters count; set by the core (deparsed size if recirculated) */
    uint32_t payload_offset;   /* set by parse: where the unparsed rest begins */
    uint32_t parser_error;     /* value of the error constant, as the JSON numbers it */
    uint32_t clone_session;    /* 0: none; else session | P4_CLONE_VALID (last call wins) */
    uint32_t clone_field_list; /* id for copy_field_list */
    uint32_t digest;           /* learn list id, 0: none */
    uint32_t resubmit;         /* field list id, 0: none */
    uint32_t recirculate;      /* field list id, 0: none */
    uint32_t truncate_to;      /* smallest n of all truncate() calls, P4_NO_TRUNCATE: none */
    uint8_t checksum_error;
    uint8_t exit;              /* `exit` was executed; ingress() and egress() clear it on entry */
    uint8_t reserved[6];
};
_Static_assert(sizeof(struct p4_phv) == 48, "the program's own fields follow at a multiple of 16");

/* Fields a target knows, under the names of TARGET_FIELDS in codegen/generate.py. A program need not have them all
 * (P4_14 programs seldom do). */
#define P4_TARGET_FIELDS(X) \
    X(INGRESS_PORT) \
    X(EGRESS_SPEC) \
    X(EGRESS_PORT) \
    X(INSTANCE_TYPE) \
    X(PACKET_LENGTH) \
    X(PARSER_ERROR) \
    X(CHECKSUM_ERROR) \
    X(PRIORITY) \
    X(MCAST_GRP) \
    X(EGRESS_RID) \
    X(INGRESS_TIMESTAMP) \
    X(EGRESS_TIMESTAMP) \
    X(ENQ_TIMESTAMP) \
    X(ENQ_QDEPTH) \
    X(DEQ_TIMEDELTA) \
    X(DEQ_QDEPTH) \
    X(QID)
#define P4_TARGET_FIELD(name) P4F_##name,
enum p4_field_id { P4_TARGET_FIELDS(P4_TARGET_FIELD) P4F_COUNT };

struct p4_field {
    int32_t offset; /* bytes from the start of the PHV; -1: the program has no such field */
    uint8_t size;   /* storage, 1, 2, 4 or 8 bytes, host order */
    uint8_t width;  /* bits; writes are truncated to it */
};

/* What a program asks of its surroundings. Any pointer may be NULL. Called under the instance's lock. */
struct p4_host {
    void *context;
    void (*log_msg)(void *context, const char *text);       /* log_msg() of the program */
    void (*assert_failed)(void *context, const char *what); /* assert/assume false; the packet goes on */
};

/* One mutex for packets and control. `waiting` lets a busy packet thread make way for control operations. */
struct p4_lock {
    pthread_mutex_t mutex;
    atomic_int waiting;
};

/* Things a program did that BMv2 leaves undefined or only logs; they are counted, never fatal. */
struct p4_faults {
    uint64_t register_index; /* read or write out of bounds: read gives no write, write is ignored */
    uint64_t counter_index;
    uint64_t meter_index;
    uint64_t stack_index;    /* header stack index out of bounds outside the parser */
    uint64_t division;       /* division or modulo by zero: result 0 */
    uint64_t hash_zero;      /* hash() with max 0, treated as 1 */
    uint64_t random_range;   /* random() with lo > hi: nothing written */
    uint64_t assertion;      /* assert or assume that did not hold */
    uint64_t parser_loop;    /* parser stopped after P4_MAX_PARSER_STEPS states */
    uint64_t no_member;      /* an action profile group without members was hit */
};

/* Head of every instance: all tables, registers, counters, meters and value sets of one switch. */
struct p4_instance {
    const struct p4_program *program;
    struct p4_host host;
    struct p4_lock *lock;   /* own_lock, or one the core shares between instances */
    uint64_t now_ns;        /* set by the core before each packet or batch: meters, idle timeouts */
    uint32_t drop_port;     /* mark_to_drop writes it; 511 unless the core says otherwise */
    uint32_t generation;    /* grows with every restart(): what was looked up before is void */
    uint64_t random_state;
    struct p4_faults faults;
    struct p4_lock own_lock;
};

struct p4_config {
    struct p4_host host;
    struct p4_lock *lock; /* NULL: the instance's own */
    uint64_t seed;        /* of random() */
    uint32_t drop_port;   /* 0: 511 */
};

struct p4_program {
    uint32_t abi;              /* P4LITE_ABI */
    uint32_t phv_size;         /* bytes of one PHV; align to 16 */
    uint32_t max_header_bytes; /* upper bound of header_length() */
    uint32_t queueing_metadata; /* 1: all four of enq_timestamp, enq_qdepth, deq_timedelta, deq_qdepth exist */
    uint32_t payload_checksums; /* 1: parse or deparse reads the payload */
    const char *name;
    struct p4_field fields[P4F_COUNT];

    struct p4_instance *(*create)(const struct p4_config *config); /* NULL: out of memory */
    void (*destroy)(struct p4_instance *);
    void (*restart)(struct p4_instance *); /* empty tables (initial entries back), zero state; lock held */

    void (*phv_init)(struct p4_phv *);     /* once per fresh memory */
    void (*phv_reset)(struct p4_phv *);    /* between packets: headers invalid, metadata 0, head cleared */
    void (*phv_copy)(struct p4_phv *dst, const struct p4_phv *src); /* dst was initialised */
    void (*reset_metadata)(struct p4_phv *); /* every metadata field 0, headers and head untouched */

    void (*parse)(struct p4_instance *, struct p4_phv *, const uint8_t *data, uint32_t len);
    void (*ingress)(struct p4_instance *, struct p4_phv *);
    void (*egress)(struct p4_instance *, struct p4_phv *);
    uint32_t (*header_length)(const struct p4_phv *); /* bytes deparse() will write now */
    /* Updates checksums, writes the headers to out; returns their bytes, or -1 if cap is too small. */
    int64_t (*deparse)(struct p4_instance *, struct p4_phv *, const uint8_t *payload, uint32_t payload_len,
                       uint8_t *out, uint32_t cap);

    /* Copies the fields of field list `id` (clone, resubmit, recirculate). Unknown id (also 0): copies nothing. */
    void (*copy_field_list)(uint32_t id, struct p4_phv *dst, const struct p4_phv *src);
    /* Serialises learn list `id`: every field big-endian, padded to whole bytes. Bytes, or -1 (unknown id, cap). */
    int64_t (*digest)(uint32_t id, const struct p4_phv *, uint8_t *out, uint32_t cap);
};

_Static_assert(offsetof(struct p4_program, abi) == 0, "looked at before anything else of a program is believed");

typedef const struct p4_program *(*p4lite_program_fn)(void);

static inline uint64_t p4_get(const struct p4_program *p, const struct p4_phv *phv, enum p4_field_id id)
{
    const struct p4_field *f = &p->fields[id];
    if (f->offset < 0)
        return 0;
    const uint8_t *at = (const uint8_t *)phv + f->offset;
    switch (f->size) {
    case 1: return *at;
    case 2: { uint16_t v; memcpy(&v, at, 2); return v; }
    case 4: { uint32_t v; memcpy(&v, at, 4); return v; }
    default: { uint64_t v; memcpy(&v, at, 8); return v; }
    }
}

/* Writes nothing when the program has no such field. */
static inline void p4_set(const struct p4_program *p, struct p4_phv *phv, enum p4_field_id id, uint64_t value)
{
    const struct p4_field *f = &p->fields[id];
    if (f->offset < 0)
        return;
    if (f->width < 64)
        value &= (UINT64_C(1) << f->width) - 1;
    uint8_t *at = (uint8_t *)phv + f->offset;
    switch (f->size) {
    case 1: *at = (uint8_t)value; break;
    case 2: { uint16_t v = (uint16_t)value; memcpy(at, &v, 2); break; }
    case 4: { uint32_t v = (uint32_t)value; memcpy(at, &v, 4); break; }
    default: memcpy(at, &value, 8); break;
    }
}

static inline int p4_has(const struct p4_program *p, enum p4_field_id id)
{
    return p->fields[id].offset >= 0;
}

static inline void p4_lock_init(struct p4_lock *l)
{
    pthread_mutex_init(&l->mutex, NULL);
    atomic_init(&l->waiting, 0);
}

static inline void p4_lock_packets(struct p4_lock *l)
{
    /* a real-time packet thread must sleep, not yield: the waiting thread may need this very core */
    for (unsigned spins = 0; atomic_load_explicit(&l->waiting, memory_order_relaxed) > 0; spins++) {
        const struct timespec moment = {0, 20000};
        if (spins < 4)
            sched_yield();
        else
            nanosleep(&moment, NULL);
    }
    pthread_mutex_lock(&l->mutex);
}

static inline void p4_lock_control(struct p4_lock *l)
{
    atomic_fetch_add(&l->waiting, 1);
    pthread_mutex_lock(&l->mutex);
    atomic_fetch_sub(&l->waiting, 1);
}

static inline void p4_unlock(struct p4_lock *l)
{
    pthread_mutex_unlock(&l->mutex);
}

#endif
