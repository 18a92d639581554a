/* All state of one switch: what a generated program's description asks for. `struct p4_state` begins with the
 * `struct p4_instance` of pipeline.h and is what generated code gets. */
#ifndef P4LITE_INSTANCE_H
#define P4LITE_INSTANCE_H

#include "hashes.h"
#include "tables.h"
#include "wide.h"

#define P4_MAX_PARSER_STEPS 1024u
#define P4_EXPORT __attribute__((visibility("default")))

struct p4_member {
    int32_t action; /* action index, -1: the slot is free */
    uint64_t *args;
};

struct p4_group {
    uint8_t used;
    uint32_t n;
    uint32_t *members; /* slots, a member may come more than once */
};

struct p4_profile {
    uint32_t n_members, n_groups; /* slots allocated */
    struct p4_member *members;
    struct p4_group *groups;
    uint64_t round_robin; /* of the selector hash that has no hash */
};

struct p4_vset {
    uint32_t count, capacity;
    uint8_t *values; /* key bytes each */
};

struct p4_profile_desc { const char *name; uint16_t arg_words; uint32_t max_size; };
struct p4_counter_desc { const char *name; uint64_t size; };
struct p4_meter_desc { const char *name; uint64_t size; uint8_t bytes; };
struct p4_register_desc { const char *name; uint64_t size; uint32_t width; };
struct p4_vset_desc { const char *name; uint32_t bytes, max_size; };

struct p4_state;

struct p4_state_desc {
    const struct p4_program *program;
    uint32_t n_tables, n_profiles, n_counters, n_meters, n_registers, n_vsets, n_crcs;
    const struct p4_table_desc *tables;
    const struct p4_profile_desc *profiles;
    const struct p4_counter_desc *counters;
    const struct p4_meter_desc *meters;
    const struct p4_register_desc *registers;
    const struct p4_vset_desc *vsets;
    int (*load_initial)(struct p4_state *); /* initial entries and default actions */
};

struct p4_state {
    struct p4_instance head;
    const struct p4_state_desc *desc;
    struct p4_table *tables;
    struct p4_profile *profiles;
    struct p4_counter_array *counters;
    struct p4_meter_array *meters;
    struct p4_register_array *registers;
    struct p4_vset *vsets;
    struct p4_crc **crcs; /* those of custom calculations that a controller has changed, else NULL */
    uint8_t *scratch; /* for checksums over the payload */
    size_t scratch_size;
};

_Static_assert(offsetof(struct p4_state, head) == 0, "one pointer is both");

/* An entry as control operations read it. */
struct p4_entry_view {
    int64_t order;
    uint64_t hit_ns, timeout_ns, now_ns, packets, bytes;
    uint32_t kind; /* enum p4_ref_kind */
    int32_t number;
    uint32_t is_const;
};

struct p4_state *p4_state_create(const struct p4_state_desc *desc, const struct p4_config *config);
void p4_state_destroy(struct p4_state *in);
/* Empties everything and loads the initial entries again. */
void p4_state_restart(struct p4_state *in);
/* At least `size` bytes of scratch memory, or NULL. */
uint8_t *p4_scratch(struct p4_state *in, size_t size);

/* For load_initial: `count` default entries, a row each: the table, the action, its arguments padded to the table's
   arg_words. */
int p4_initial_defaults(struct p4_state *in, const uint64_t *rows, uint32_t count);
/* For load_initial: `count` constant entries. A row is the action, its arguments padded to the table's arg_words, the
   key's value; unless `mask` is given for all of them (exact tables), the order and the key's mask; of a range table
   the key's upper ends. */
int p4_initial_entries(struct p4_state *in, uint32_t table, const uint64_t *mask, const uint64_t *rows,
                       uint32_t count);

int p4_vset_contains(const struct p4_vset *v, const uint8_t *key, const uint8_t *mask, uint32_t bytes);

/* Member of a group for a hash value, NULL if the group has none. */
static inline const struct p4_member *p4_group_choose(struct p4_state *in, const struct p4_profile *profile,
                                                      int32_t group, uint64_t hash)
{
    const struct p4_group *g = &profile->groups[group];
    if (g->n == 0) {
        in->head.faults.no_member++;
        return NULL;
    }
    return &profile->members[g->members[hash % g->n]];
}

/* Books a hit: counter, idle time. */
static inline __attribute__((always_inline)) void p4_hit(struct p4_state *in, struct p4_entry *e, unsigned flags,
                                                         uint32_t length)
{
    if (flags & P4_WITH_COUNTERS)
        p4_count(&e->counter, length);
    if (flags & P4_WITH_TIMEOUT)
        e->hit_ns = in->head.now_ns;
}

/* --- log_msg --- */
struct p4_text {
    uint32_t length;
    char buffer[1000];
};
void p4_text_add(struct p4_text *t, const char *s);
/* The decimal value of n two's complement limbs. */
void p4_text_number(struct p4_text *t, const uint64_t *limbs, int n);
void p4_log(struct p4_state *in, struct p4_text *t);
void p4_assert_failed(struct p4_state *in, const char *what);

#endif
