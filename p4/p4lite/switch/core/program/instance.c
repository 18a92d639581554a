#include "instance.h"

#include <stdlib.h>

static int allocate(struct p4_state *in)
{
    const struct p4_state_desc *d = in->desc;
    in->tables = calloc(d->n_tables + 1, sizeof *in->tables);
    in->profiles = calloc(d->n_profiles + 1, sizeof *in->profiles);
    in->counters = calloc(d->n_counters + 1, sizeof *in->counters);
    in->meters = calloc(d->n_meters + 1, sizeof *in->meters);
    in->registers = calloc(d->n_registers + 1, sizeof *in->registers);
    in->vsets = calloc(d->n_vsets + 1, sizeof *in->vsets);
    if (!in->tables || !in->profiles || !in->counters || !in->meters || !in->registers || !in->vsets)
        return P4_NO_MEMORY;
    for (uint32_t i = 0; i < d->n_tables; i++)
        if (p4_table_init(&in->tables[i], &d->tables[i]) < 0)
            return P4_NO_MEMORY;
    for (uint32_t i = 0; i < d->n_counters; i++) {
        in->counters[i].size = d->counters[i].size;
        if (!(in->counters[i].cells = calloc(d->counters[i].size + 1, sizeof(struct p4_counter))))
            return P4_NO_MEMORY;
    }
    for (uint32_t i = 0; i < d->n_meters; i++) {
        in->meters[i].size = d->meters[i].size;
        in->meters[i].bytes = d->meters[i].bytes;
        if (!(in->meters[i].cells = calloc(d->meters[i].size + 1, sizeof(struct p4_meter))))
            return P4_NO_MEMORY;
    }
    for (uint32_t i = 0; i < d->n_registers; i++) {
        struct p4_register_array *a = &in->registers[i];
        uint32_t width = d->registers[i].width;
        a->size = d->registers[i].size;
        a->words = (width + 63) / 64;
        a->mask = width % 64 ? (UINT64_C(1) << (width % 64)) - 1 : UINT64_MAX;
        if (!(a->cells = calloc(a->size * a->words + 1, sizeof *a->cells)))
            return P4_NO_MEMORY;
    }
    return (in->crcs = calloc(d->n_crcs + 1, sizeof *in->crcs)) ? P4_OK : P4_NO_MEMORY;
}

struct p4_state *p4_state_create(const struct p4_state_desc *desc, const struct p4_config *config)
{
    struct p4_state *in = calloc(1, sizeof *in);
    if (!in)
        return NULL;
    in->desc = desc;
    in->head.program = desc->program;
    in->head.host = config->host;
    in->head.drop_port = config->drop_port ? config->drop_port : 511;
    in->head.random_state = config->seed;
    p4_lock_init(&in->head.own_lock);
    in->head.lock = config->lock ? config->lock : &in->head.own_lock;
    if (allocate(in) < 0 || desc->load_initial(in) < 0) {
        p4_state_destroy(in);
        return NULL;
    }
    return in;
}

static void profile_free(struct p4_profile *p)
{
    for (uint32_t i = 0; i < p->n_members; i++)
        free(p->members[i].args);
    for (uint32_t i = 0; i < p->n_groups; i++)
        free(p->groups[i].members);
    free(p->members);
    free(p->groups);
    memset(p, 0, sizeof *p);
}

void p4_state_destroy(struct p4_state *in)
{
    if (!in)
        return;
    const struct p4_state_desc *d = in->desc;
    for (uint32_t i = 0; in->tables && i < d->n_tables; i++)
        p4_table_free(&in->tables[i]);
    for (uint32_t i = 0; in->profiles && i < d->n_profiles; i++)
        profile_free(&in->profiles[i]);
    for (uint32_t i = 0; in->counters && i < d->n_counters; i++)
        free(in->counters[i].cells);
    for (uint32_t i = 0; in->meters && i < d->n_meters; i++)
        free(in->meters[i].cells);
    for (uint32_t i = 0; in->registers && i < d->n_registers; i++)
        free(in->registers[i].cells);
    for (uint32_t i = 0; in->vsets && i < d->n_vsets; i++)
        free(in->vsets[i].values);
    for (uint32_t i = 0; in->crcs && i < d->n_crcs; i++)
        free(in->crcs[i]);
    free(in->crcs);
    free(in->tables);
    free(in->profiles);
    free(in->counters);
    free(in->meters);
    free(in->registers);
    free(in->vsets);
    free(in->scratch);
    pthread_mutex_destroy(&in->head.own_lock.mutex);
    free(in);
}

void p4_state_restart(struct p4_state *in)
{
    const struct p4_state_desc *d = in->desc;
    for (uint32_t i = 0; i < d->n_tables; i++)
        p4_table_clear(&in->tables[i]);
    for (uint32_t i = 0; i < d->n_profiles; i++)
        profile_free(&in->profiles[i]);
    for (uint32_t i = 0; i < d->n_counters; i++)
        memset(in->counters[i].cells, 0, in->counters[i].size * sizeof(struct p4_counter));
    for (uint32_t i = 0; i < d->n_meters; i++)
        memset(in->meters[i].cells, 0, in->meters[i].size * sizeof(struct p4_meter));
    for (uint32_t i = 0; i < d->n_registers; i++)
        memset(in->registers[i].cells, 0, in->registers[i].size * in->registers[i].words * sizeof(uint64_t));
    for (uint32_t i = 0; i < d->n_vsets; i++)
        in->vsets[i].count = 0;
    in->head.generation++;
    d->load_initial(in);
}

uint8_t *p4_scratch(struct p4_state *in, size_t size)
{
    if (size > in->scratch_size) {
        uint8_t *grown = realloc(in->scratch, size);
        if (!grown)
            return NULL;
        in->scratch = grown;
        in->scratch_size = size;
    }
    return in->scratch;
}

int p4_initial_defaults(struct p4_state *in, const uint64_t *rows, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct p4_table *t = &in->tables[*rows++];
        t->default_entry->act = (struct p4_act){P4_REF_ACTION, (int32_t)*rows++};
        memcpy(t->default_entry->data, rows, t->desc->arg_words * sizeof *rows);
        rows += t->desc->arg_words;
    }
    return P4_OK;
}

int p4_initial_entries(struct p4_state *in, uint32_t table, const uint64_t *mask, const uint64_t *rows, uint32_t count)
{
    struct p4_table *t = &in->tables[table];
    unsigned words = t->desc->key_words;
    for (uint32_t i = 0; i < count; i++) {
        struct p4_act act = {P4_REF_ACTION, (int32_t)*rows++};
        const uint64_t *args = rows;
        rows += t->desc->arg_words;
        struct p4_key key = {rows, mask, rows, 0};
        rows += words;
        if (!mask) {
            key.order = (int64_t)*rows++;
            key.mask = rows;
            rows += words;
        }
        if (t->desc->kind == P4_RANGE) {
            key.high = rows;
            rows += words;
        }
        uint32_t handle;
        int status = p4_table_insert(t, &key, act, args, in->head.now_ns, &handle);
        if (status != P4_OK)
            return status;
        p4_table_at(t, handle)->is_const = 1;
    }
    return P4_OK;
}

int p4_vset_contains(const struct p4_vset *v, const uint8_t *key, const uint8_t *mask, uint32_t bytes)
{
    for (uint32_t i = 0; i < v->count; i++)
        if (p4_match_bytes(key, v->values + (size_t)i * bytes, mask, bytes))
            return 1;
    return 0;
}

void p4_text_add(struct p4_text *t, const char *s)
{
    while (*s && t->length < sizeof t->buffer - 1)
        t->buffer[t->length++] = *s++;
    t->buffer[t->length] = 0;
}

void p4_text_number(struct p4_text *t, const uint64_t *limbs, int n)
{
    uint64_t value[n];
    char digits[20 * n + 2];
    size_t at = sizeof digits;
    memcpy(value, limbs, sizeof value);
    int negative = (int)(p4w_sign(value, n) & 1), more = 1;
    if (negative)
        p4w_negate(value, n);
    digits[--at] = 0;
    while (more) {
        u128 rest = 0;
        more = 0;
        for (int i = n - 1; i >= 0; i--) {
            rest = rest << 64 | value[i];
            value[i] = (uint64_t)(rest / 10);
            rest %= 10;
            more |= value[i] != 0;
        }
        digits[--at] = (char)('0' + (int)rest);
    }
    if (negative)
        p4_text_add(t, "-");
    p4_text_add(t, digits + at);
}

void p4_log(struct p4_state *in, struct p4_text *t)
{
    if (in->head.host.log_msg)
        in->head.host.log_msg(in->head.host.context, t->buffer);
}

void p4_assert_failed(struct p4_state *in, const char *what)
{
    in->head.faults.assertion++;
    if (in->head.host.assert_failed)
        in->head.host.assert_failed(in->head.host.context, what);
}
