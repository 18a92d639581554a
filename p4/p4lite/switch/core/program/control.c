/* Control operations on an instance, called from Python (p4lite/switch/runtime). Each takes the instance's
 * lock, so packets see all of an operation or nothing. Names, widths and permissions were checked by the caller;
 * indices are checked here. */
#include "instance.h"

#include <stdlib.h>

static struct p4_state *lock(struct p4_instance *head)
{
    p4_lock_control(head->lock);
    return (struct p4_state *)(void *)head;
}

static int unlock(struct p4_state *in, int status)
{
    p4_unlock(in->head.lock);
    return status;
}

static struct p4_entry *entry_at(struct p4_table *t, int64_t handle)
{
    if (handle < 0)
        return t->default_entry;
    if (handle >= t->high_water || !p4_table_at(t, (uint32_t)handle)->used)
        return NULL;
    return p4_table_at(t, (uint32_t)handle);
}

/* --- tables; handle -1 is the default entry --- */

P4_EXPORT int p4c_table_insert(struct p4_instance *head, uint32_t table, const uint64_t *value, const uint64_t *mask,
                               const uint64_t *high, int64_t order, uint32_t kind, int32_t number,
                               const uint64_t *args, uint64_t timeout_ns, uint32_t *handle)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    struct p4_key key = {value, mask, high, order};
    int status = p4_table_insert(t, &key, (struct p4_act){kind, number}, args, in->head.now_ns, handle);
    if (status == P4_OK)
        p4_table_at(t, *handle)->timeout_ns = timeout_ns;
    return unlock(in, status);
}

P4_EXPORT int p4c_table_modify(struct p4_instance *head, uint32_t table, int64_t handle, uint32_t kind,
                               int32_t number, const uint64_t *args)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    struct p4_entry *e = entry_at(t, handle);
    if (!e)
        return unlock(in, P4_NOT_FOUND);
    e->act = (struct p4_act){kind, number};
    memcpy(e->data, args, t->desc->arg_words * sizeof *args);
    return unlock(in, P4_OK);
}

P4_EXPORT int p4c_table_delete(struct p4_instance *head, uint32_t table, int64_t handle)
{
    struct p4_state *in = lock(head);
    struct p4_entry *e = entry_at(&in->tables[table], handle);
    int status = !e || handle < 0 ? P4_NOT_FOUND : p4_table_delete(&in->tables[table], (uint32_t)handle);
    return unlock(in, status);
}

P4_EXPORT int64_t p4c_table_find(struct p4_instance *head, uint32_t table, const uint64_t *value,
                                 const uint64_t *mask, const uint64_t *high, int64_t order)
{
    struct p4_state *in = lock(head);
    struct p4_key key = {value, mask, high, order};
    struct p4_entry *e = p4_table_find(&in->tables[table], &key);
    int64_t handle = e ? (int64_t)e->handle : P4_NOT_FOUND;
    unlock(in, 0);
    return handle;
}

/* `data` receives arg_words + 3 * key_words words: arguments, value, mask, high. */
P4_EXPORT int p4c_table_get(struct p4_instance *head, uint32_t table, int64_t handle, struct p4_entry_view *view,
                            uint64_t *data)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    struct p4_entry *e = entry_at(t, handle);
    if (!e)
        return unlock(in, P4_NOT_FOUND);
    *view = (struct p4_entry_view){e->order, e->hit_ns, e->timeout_ns, in->head.now_ns, e->counter.packets,
                                   e->counter.bytes, e->act.kind, e->act.number, e->is_const};
    memcpy(data, e->data, t->stride - sizeof *e);
    return unlock(in, P4_OK);
}

/* The first handle from `from` on, or P4_NOT_FOUND. */
P4_EXPORT int64_t p4c_table_next(struct p4_instance *head, uint32_t table, int64_t from)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    int64_t found = P4_NOT_FOUND;
    for (int64_t h = from; h < t->high_water && found < 0; h++)
        if (p4_table_at(t, (uint32_t)h)->used)
            found = h;
    unlock(in, 0);
    return found;
}

P4_EXPORT uint32_t p4c_table_size(struct p4_instance *head, uint32_t table)
{
    struct p4_state *in = lock(head);
    uint32_t size = in->tables[table].size;
    unlock(in, 0);
    return size;
}

/* Deletes all entries; the default entry stays. */
P4_EXPORT int p4c_table_clear(struct p4_instance *head, uint32_t table)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    for (uint32_t h = 0; h < t->high_water; h++)
        if (p4_table_at(t, h)->used)
            p4_table_delete(t, h);
    return unlock(in, P4_OK);
}

P4_EXPORT int p4c_table_set_timeout(struct p4_instance *head, uint32_t table, int64_t handle, uint64_t timeout_ns)
{
    struct p4_state *in = lock(head);
    struct p4_entry *e = entry_at(&in->tables[table], handle);
    if (e)
        e->timeout_ns = timeout_ns;
    return unlock(in, e ? P4_OK : P4_NOT_FOUND);
}

/* Handles of up to `limit` entries idle for their timeout; an entry is reported again after another timeout. */
P4_EXPORT uint32_t p4c_table_idle(struct p4_instance *head, uint32_t table, uint64_t now_ns, uint32_t *handles,
                                  uint32_t limit)
{
    struct p4_state *in = lock(head);
    struct p4_table *t = &in->tables[table];
    uint32_t n = 0;
    for (uint32_t h = 0; h < t->high_water && n < limit; h++) {
        struct p4_entry *e = p4_table_at(t, h);
        uint64_t since = e->reported_ns > e->hit_ns ? e->reported_ns : e->hit_ns;
        if (e->used && e->timeout_ns != 0 && now_ns >= since && now_ns - since >= e->timeout_ns) {
            e->reported_ns = now_ns;
            handles[n++] = h;
        }
    }
    unlock(in, 0);
    return n;
}

P4_EXPORT int p4c_direct_counter_write(struct p4_instance *head, uint32_t table, int64_t handle, uint64_t packets,
                                       uint64_t bytes)
{
    struct p4_state *in = lock(head);
    struct p4_entry *e = entry_at(&in->tables[table], handle);
    if (e)
        e->counter = (struct p4_counter){packets, bytes};
    return unlock(in, e ? P4_OK : P4_NOT_FOUND);
}

/* --- meters: table -1 with an array and index, or a table and a handle --- */

static struct p4_meter *find_meter(struct p4_state *in, int32_t table, uint32_t array, int64_t index)
{
    if (table < 0)
        return index < 0 || (uint64_t)index >= in->meters[array].size ? NULL : &in->meters[array].cells[index];
    struct p4_table *t = &in->tables[table];
    if (index < 0)
        return &t->default_meter;
    return entry_at(t, index) ? &t->meters[index] : NULL;
}

/* config: cir, cburst, pir, pburst; NULL unconfigures. */
P4_EXPORT int p4c_meter_set(struct p4_instance *head, int32_t table, uint32_t array, int64_t index,
                            const uint64_t *config)
{
    struct p4_state *in = lock(head);
    struct p4_meter *m = find_meter(in, table, array, index);
    if (!m)
        return unlock(in, P4_NOT_FOUND);
    if (config)
        p4_meter_configure(m, config[0], config[1], config[2], config[3], in->head.now_ns);
    else
        memset(m, 0, sizeof *m);
    return unlock(in, P4_OK);
}

/* 1 if configured, 0 if not. */
P4_EXPORT int p4c_meter_get(struct p4_instance *head, int32_t table, uint32_t array, int64_t index, uint64_t *config)
{
    struct p4_state *in = lock(head);
    struct p4_meter *m = find_meter(in, table, array, index);
    if (!m)
        return unlock(in, P4_NOT_FOUND);
    config[0] = m->cir;
    config[1] = m->cburst;
    config[2] = m->pir;
    config[3] = m->pburst;
    return unlock(in, m->configured);
}

/* --- counters and registers: `count` cells from `first` on --- */

P4_EXPORT int p4c_counter_read(struct p4_instance *head, uint32_t array, uint64_t first, uint64_t count,
                               struct p4_counter *out)
{
    struct p4_state *in = lock(head);
    struct p4_counter_array *a = &in->counters[array];
    if (first > a->size || count > a->size - first)
        return unlock(in, P4_INVALID);
    memcpy(out, a->cells + first, count * sizeof *out);
    return unlock(in, P4_OK);
}

P4_EXPORT int p4c_counter_write(struct p4_instance *head, uint32_t array, uint64_t first, uint64_t count,
                                uint64_t packets, uint64_t bytes)
{
    struct p4_state *in = lock(head);
    struct p4_counter_array *a = &in->counters[array];
    if (first > a->size || count > a->size - first)
        return unlock(in, P4_INVALID);
    for (uint64_t i = first; i < first + count; i++)
        a->cells[i] = (struct p4_counter){packets, bytes};
    return unlock(in, P4_OK);
}

P4_EXPORT int p4c_register_read(struct p4_instance *head, uint32_t array, uint64_t first, uint64_t count,
                                uint64_t *out)
{
    struct p4_state *in = lock(head);
    struct p4_register_array *a = &in->registers[array];
    if (first > a->size || count > a->size - first)
        return unlock(in, P4_INVALID);
    memcpy(out, a->cells + first * a->words, count * a->words * sizeof *out);
    return unlock(in, P4_OK);
}

P4_EXPORT int p4c_register_write(struct p4_instance *head, uint32_t array, uint64_t first, uint64_t count,
                                 const uint64_t *value)
{
    struct p4_state *in = lock(head);
    struct p4_register_array *a = &in->registers[array];
    if (first > a->size || count > a->size - first)
        return unlock(in, P4_INVALID);
    for (uint64_t i = first; i < first + count; i++)
        memcpy(a->cells + i * a->words, value, a->words * sizeof *value);
    return unlock(in, P4_OK);
}

/* --- action profiles: members and groups by slot --- */

P4_EXPORT int p4c_member_set(struct p4_instance *head, uint32_t profile, uint32_t slot, int32_t action,
                             const uint64_t *args)
{
    struct p4_state *in = lock(head);
    struct p4_profile *p = &in->profiles[profile];
    size_t size = in->desc->profiles[profile].arg_words * sizeof *args;
    if (slot >= p->n_members) {
        struct p4_member *members = realloc(p->members, (slot + (size_t)1) * sizeof *members);
        if (!members)
            return unlock(in, P4_NO_MEMORY);
        for (uint32_t i = p->n_members; i <= slot; i++)
            members[i] = (struct p4_member){-1, NULL};
        p->members = members;
        p->n_members = slot + 1;
    }
    struct p4_member *m = &p->members[slot];
    if (!m->args && !(m->args = calloc(1, size + 8)))
        return unlock(in, P4_NO_MEMORY);
    m->action = action;
    if (action >= 0)
        memcpy(m->args, args, size);
    return unlock(in, P4_OK);
}

/* Sets a group's members (`members` NULL frees the slot). */
P4_EXPORT int p4c_group_set(struct p4_instance *head, uint32_t profile, uint32_t slot, uint32_t n,
                            const uint32_t *members)
{
    struct p4_state *in = lock(head);
    struct p4_profile *p = &in->profiles[profile];
    if (slot >= p->n_groups) {
        struct p4_group *groups = realloc(p->groups, (slot + (size_t)1) * sizeof *groups);
        if (!groups)
            return unlock(in, P4_NO_MEMORY);
        memset(groups + p->n_groups, 0, (slot + (size_t)1 - p->n_groups) * sizeof *groups);
        p->groups = groups;
        p->n_groups = slot + 1;
    }
    uint32_t *copy = malloc((n + (size_t)1) * sizeof *copy);
    if (!copy)
        return unlock(in, P4_NO_MEMORY);
    if (n)
        memcpy(copy, members, n * sizeof *copy);
    free(p->groups[slot].members);
    p->groups[slot] = (struct p4_group){members != NULL, n, copy};
    return unlock(in, P4_OK);
}

/* --- value sets --- */

/* Replaces the whole set. */
P4_EXPORT int p4c_vset_set(struct p4_instance *head, uint32_t vset, uint32_t count, const uint8_t *values)
{
    struct p4_state *in = lock(head);
    struct p4_vset *v = &in->vsets[vset];
    size_t size = (size_t)count * in->desc->vsets[vset].bytes;
    uint8_t *copy = malloc(size + 1);
    if (!copy)
        return unlock(in, P4_NO_MEMORY);
    memcpy(copy, values, size);
    free(v->values);
    *v = (struct p4_vset){count, count, copy};
    return unlock(in, P4_OK);
}

P4_EXPORT uint32_t p4c_vset_get(struct p4_instance *head, uint32_t vset, uint8_t *values, uint32_t limit)
{
    struct p4_state *in = lock(head);
    struct p4_vset *v = &in->vsets[vset];
    uint32_t count = v->count < limit ? v->count : limit;
    if (count)
        memcpy(values, v->values, (size_t)count * in->desc->vsets[vset].bytes);
    uint32_t total = v->count;
    unlock(in, 0);
    return total;
}

P4_EXPORT int p4c_crc_set(struct p4_instance *head, uint32_t index, uint32_t width, const uint64_t *words)
{
    struct p4_crc *crc = calloc(1, sizeof *crc);
    if (!crc)
        return P4_NO_MEMORY;
    *crc = (struct p4_crc){.polynomial = words[0], .initial = words[1], .final_xor = words[2], .width = (uint8_t)width,
                           .data_reflected = words[3] != 0, .remainder_reflected = words[4] != 0};
    p4_crc_prepare(crc);
    struct p4_state *in = lock(head);
    free(in->crcs[index]);
    in->crcs[index] = crc;
    return unlock(in, P4_OK);
}

/* --- the whole --- */

P4_EXPORT int p4c_restart(struct p4_instance *head)
{
    struct p4_state *in = lock(head);
    p4_state_restart(in);
    return unlock(in, P4_OK);
}

/* For callers that run packets through the program without the fabric core. */
P4_EXPORT void p4c_lock_packets(struct p4_instance *head)
{
    p4_lock_packets(head->lock);
}

P4_EXPORT void p4c_unlock_packets(struct p4_instance *head)
{
    p4_unlock(head->lock);
}

P4_EXPORT void p4c_faults(struct p4_instance *head, struct p4_faults *out)
{
    struct p4_state *in = lock(head);
    *out = in->head.faults;
    unlock(in, 0);
}

P4_EXPORT uint32_t p4c_generation(struct p4_instance *head)
{
    return head->generation;
}

P4_EXPORT void p4c_set_now(struct p4_instance *head, uint64_t now_ns)
{
    struct p4_state *in = lock(head);
    in->head.now_ns = now_ns;
    unlock(in, 0);
}
