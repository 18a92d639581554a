#include "tables.h"

#include <stdlib.h>

/* A range field is expanded as long as the entry's prefixes do not outnumber this. */
#define MAX_EXPANSION 128

int p4_table_init(struct p4_table *t, const struct p4_table_desc *desc)
{
    memset(t, 0, sizeof *t);
    t->desc = desc;
    t->stride = (uint32_t)(sizeof(struct p4_entry) + 8u * (desc->arg_words + 3u * desc->key_words));
    t->node_stride = (uint32_t)(sizeof(struct p4_node) + 8u * desc->key_words);
    t->slot_mask = 15;
    t->slots = calloc(t->slot_mask + 1, sizeof *t->slots);
    t->default_entry = calloc(1, t->stride);
    if (!t->slots || !t->default_entry) {
        p4_table_free(t);
        return P4_NO_MEMORY;
    }
    return P4_OK;
}

void p4_table_free(struct p4_table *t)
{
    free(t->slots);
    free(t->default_entry);
    free(t->entries);
    free(t->meters);
    free(t->nodes);
    free(t->tuples);
    free(t->masks);
    free(t->order);
    memset(t, 0, sizeof *t);
}

void p4_table_clear(struct p4_table *t)
{
    memset(t->slots, 0, (t->slot_mask + (size_t)1) * sizeof *t->slots);
    memset(t->default_entry, 0, t->stride);
    memset(&t->default_meter, 0, sizeof t->default_meter);
    t->size = t->high_water = t->free_entry = 0;
    t->nodes_used = t->free_node = 0;
    t->n_tuples = t->n_order = 0;
}

static uint64_t *entry_value(const struct p4_table *t, const struct p4_entry *e)
{
    return (uint64_t *)(uintptr_t)(e->data + t->desc->arg_words);
}

/* Bounds of a range field in key words. */
static void field_words(const struct p4_range_field *f, const uint64_t *words, uint64_t *out)
{
    for (unsigned i = 0; i < f->words; i++)
        out[i] = words[f->word + i];
    if (f->words == 1) {
        out[0] >>= f->shift;
        if (f->width < 64)
            out[0] &= (UINT64_C(1) << f->width) - 1;
    }
}

static int words_less(const uint64_t *a, const uint64_t *b, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (a[i] != b[i])
            return a[i] < b[i];
    return 0;
}

int p4_entry_in_range(const struct p4_table *t, const struct p4_entry *e, const uint64_t *key)
{
    const struct p4_table_desc *d = t->desc;
    const uint64_t *value = entry_value(t, e), *high = value + 2 * d->key_words;
    for (unsigned i = 0; i < d->n_ranges; i++) {
        const struct p4_range_field *f = &d->ranges[i];
        uint64_t k[P4_MAX_KEY_WORDS], low[P4_MAX_KEY_WORDS], top[P4_MAX_KEY_WORDS];
        field_words(f, key, k);
        field_words(f, value, low);
        field_words(f, high, top);
        if (words_less(k, low, f->words) || words_less(top, k, f->words))
            return 0;
    }
    return 1;
}

/* --- tuples --- */

static void tuple_raise(struct p4_table *t, uint32_t tuple)
{
    uint32_t i = 0;
    while (t->order[i] != tuple)
        i++;
    for (; i > 0 && t->tuples[t->order[i - 1]].best > t->tuples[tuple].best; i--)
        t->order[i] = t->order[i - 1];
    t->order[i] = tuple;
}

static int64_t tuple_find(const struct p4_table *t, const uint64_t *mask)
{
    for (uint32_t i = 0; i < t->n_order; i++) {
        uint32_t tuple = t->order[i];
        if (p4_words_equal(t->masks + (size_t)tuple * t->desc->key_words, mask, t->desc->key_words))
            return tuple;
    }
    return -1;
}

static int64_t tuple_get(struct p4_table *t, const uint64_t *mask)
{
    int64_t found = tuple_find(t, mask);
    if (found >= 0)
        return found;
    uint32_t index = t->n_tuples;
    for (uint32_t i = 0; i < t->n_tuples; i++)
        if (!t->tuples[i].used)
            index = i;
    unsigned words = t->desc->key_words;
    if (index == t->tuples_capacity) {
        uint32_t capacity = t->tuples_capacity ? 2 * t->tuples_capacity : 8;
        struct p4_tuple *tuples = realloc(t->tuples, capacity * sizeof *tuples);
        if (tuples)
            t->tuples = tuples;
        uint64_t *masks = realloc(t->masks, (size_t)capacity * (words ? words : 1) * sizeof *masks);
        if (masks)
            t->masks = masks;
        uint32_t *order = realloc(t->order, capacity * sizeof *order);
        if (order)
            t->order = order;
        if (!tuples || !masks || !order)
            return P4_NO_MEMORY;
        t->tuples_capacity = capacity;
    }
    if (index == t->n_tuples)
        t->n_tuples++;
    t->tuples[index] = (struct p4_tuple){.best = INT64_MAX, .entries = 0, .used = 1};
    if (words)
        memcpy(t->masks + (size_t)index * words, mask, words * sizeof *mask);
    t->order[t->n_order++] = index;
    return index;
}

static void tuple_release(struct p4_table *t, uint32_t tuple)
{
    if (--t->tuples[tuple].entries > 0)
        return;
    t->tuples[tuple].used = 0;
    uint32_t i = 0;
    while (t->order[i] != tuple)
        i++;
    memmove(t->order + i, t->order + i + 1, (t->n_order - i - 1) * sizeof *t->order);
    t->n_order--;
}

/* --- hash table of nodes --- */

static void slot_put(struct p4_slot *slots, uint32_t mask, struct p4_slot s)
{
    uint32_t i = s.hash & mask;
    while (slots[i].node)
        i = (i + 1) & mask;
    slots[i] = s;
}

static int slots_grow(struct p4_table *t)
{
    uint32_t mask = t->slot_mask * 2 + 1;
    struct p4_slot *slots = calloc((size_t)mask + 1, sizeof *slots);
    if (!slots)
        return P4_NO_MEMORY;
    for (uint32_t i = 0; i <= t->slot_mask; i++)
        if (t->slots[i].node)
            slot_put(slots, mask, t->slots[i]);
    free(t->slots);
    t->slots = slots;
    t->slot_mask = mask;
    return P4_OK;
}

static uint32_t slot_of(const struct p4_table *t, uint32_t hash, uint32_t node)
{
    uint32_t i = hash & t->slot_mask;
    while (t->slots[i].node != node + 1)
        i = (i + 1) & t->slot_mask;
    return i;
}

/* Linear probing without tombstones: later entries of the run move up. */
static void slot_remove(struct p4_table *t, uint32_t hole)
{
    uint32_t i = hole;
    for (;;) {
        i = (i + 1) & t->slot_mask;
        if (!t->slots[i].node)
            break;
        uint32_t home = t->slots[i].hash & t->slot_mask;
        if (((i - home) & t->slot_mask) >= ((i - hole) & t->slot_mask)) {
            t->slots[hole] = t->slots[i];
            hole = i;
        }
    }
    t->slots[hole] = (struct p4_slot){0, 0};
}

static int64_t node_new(struct p4_table *t)
{
    if (t->free_node) {
        uint32_t index = t->free_node - 1;
        t->free_node = p4_table_node(t, index)->next;
        return index;
    }
    if (t->nodes_used == t->nodes_capacity) {
        uint32_t capacity = t->nodes_capacity ? 2 * t->nodes_capacity : 16;
        uint8_t *nodes = realloc(t->nodes, (size_t)capacity * t->node_stride);
        if (!nodes)
            return P4_NO_MEMORY;
        t->nodes = nodes;
        t->nodes_capacity = capacity;
    }
    return t->nodes_used++;
}

static int node_before(const struct p4_table *t, const struct p4_entry *e, uint32_t node)
{
    const struct p4_entry *other = p4_table_at(t, p4_table_node(t, node)->entry);
    return e->order < other->order || (e->order == other->order && e->handle < other->handle);
}

static int node_insert(struct p4_table *t, struct p4_entry *e, const uint64_t *mask, const uint64_t *value)
{
    unsigned words = t->desc->key_words;
    int64_t tuple = tuple_get(t, mask);
    if (tuple < 0)
        return P4_NO_MEMORY;
    t->tuples[tuple].entries++;
    int64_t made = (t->nodes_used + 1) * UINT64_C(2) > t->slot_mask && slots_grow(t) < 0 ? -1 : node_new(t);
    if (made < 0) {
        tuple_release(t, (uint32_t)tuple);
        return P4_NO_MEMORY;
    }
    uint32_t index = (uint32_t)made;
    struct p4_node *node = p4_table_node(t, index);
    *node = (struct p4_node){.entry = e->handle, .tuple = (uint32_t)tuple};
    memcpy(node->key, value, words * sizeof *value);
    node->hash = p4_key_hash(value, words, node->tuple);
    struct p4_node *head = p4_table_probe(t, value, words, node->tuple);
    if (!head) {
        slot_put(t->slots, t->slot_mask, (struct p4_slot){node->hash, index + 1});
    } else {
        uint32_t at = (uint32_t)(((uint8_t *)head - t->nodes) / t->node_stride);
        if (node_before(t, e, at)) {
            t->slots[slot_of(t, node->hash, at)].node = index + 1;
            node->next = at + 1;
        } else {
            while (head->next && !node_before(t, e, head->next - 1))
                head = p4_table_node(t, head->next - 1);
            node->next = head->next;
            head->next = index + 1;
        }
    }
    if (e->order < t->tuples[tuple].best) {
        t->tuples[tuple].best = e->order;
        tuple_raise(t, (uint32_t)tuple);
    }
    return P4_OK;
}

static void node_delete(struct p4_table *t, const struct p4_entry *e, const uint64_t *mask, const uint64_t *value)
{
    int64_t tuple = tuple_find(t, mask);
    struct p4_node *head = tuple < 0 ? NULL : p4_table_probe(t, value, t->desc->key_words, (uint32_t)tuple);
    if (!head)
        return; /* of an insertion that ran out of memory half-way */
    uint32_t at = (uint32_t)(((uint8_t *)head - t->nodes) / t->node_stride), gone;
    if (head->entry == e->handle) {
        uint32_t slot = slot_of(t, head->hash, at);
        gone = at;
        if (head->next)
            t->slots[slot].node = head->next;
        else
            slot_remove(t, slot);
    } else {
        while (head->next && p4_table_node(t, head->next - 1)->entry != e->handle)
            head = p4_table_node(t, head->next - 1);
        if (!head->next)
            return;
        gone = head->next - 1;
        head->next = p4_table_node(t, gone)->next;
    }
    p4_table_node(t, gone)->next = t->free_node;
    t->free_node = gone + 1;
    tuple_release(t, (uint32_t)tuple);
}

/* --- ranges as prefixes --- */

struct expansion {
    uint64_t *mask, *value; /* key words, completed field by field */
    int (*visit)(struct p4_table *, struct p4_entry *, const uint64_t *mask, const uint64_t *value);
    int status;
};

static unsigned prefixes(uint64_t low, uint64_t high, unsigned width, uint64_t *values, uint8_t *bits, unsigned limit)
{
    unsigned n = 0;
    for (;;) {
        unsigned size = low ? (unsigned)__builtin_ctzll(low) : 64;
        if (size > width)
            size = width;
        while (size > 0 && (size >= 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1) > high - low)
            size--;
        if (n < limit) {
            values[n] = low;
            bits[n] = (uint8_t)size;
        }
        n++;
        uint64_t span = size >= 64 ? UINT64_MAX : (UINT64_C(1) << size) - 1;
        if (high - low == span)
            return n;
        low += span + 1;
    }
}

static void expand(struct p4_table *t, struct p4_entry *e, struct expansion *x, unsigned field, unsigned budget)
{
    const struct p4_table_desc *d = t->desc;
    if (field == d->n_ranges) {
        if (x->status == P4_OK)
            x->status = x->visit(t, e, x->mask, x->value);
        return;
    }
    const struct p4_range_field *f = &d->ranges[field];
    uint64_t all = f->width == 64 ? UINT64_MAX : (UINT64_C(1) << f->width) - 1;
    for (unsigned i = 0; i < f->words; i++) {
        uint64_t keep = f->words == 1 ? ~(all << f->shift) : 0;
        x->mask[f->word + i] &= keep;
        x->value[f->word + i] &= keep;
    }
    uint64_t values[MAX_EXPANSION], low[P4_MAX_KEY_WORDS], high[P4_MAX_KEY_WORDS];
    uint8_t bits[MAX_EXPANSION];
    const uint64_t *from = entry_value(t, e);
    field_words(f, from, low);
    field_words(f, from + 2 * d->key_words, high);
    unsigned n = f->words > 1 ? MAX_EXPANSION + 1 : prefixes(low[0], high[0], f->width, values, bits, budget);
    if (n > budget) { /* any: the check against the bounds decides */
        e->check_range = 1;
        expand(t, e, x, field + 1, budget);
        return;
    }
    uint64_t mask = x->mask[f->word], value = x->value[f->word];
    for (unsigned i = 0; i < n; i++) {
        uint64_t m = bits[i] >= 64 ? 0 : all & ~((UINT64_C(1) << bits[i]) - 1);
        x->mask[f->word] = mask | m << f->shift;
        x->value[f->word] = value | (values[i] & m) << f->shift;
        expand(t, e, x, field + 1, budget / n);
    }
    x->mask[f->word] = mask;
    x->value[f->word] = value;
}

static int each_node(struct p4_table *t, struct p4_entry *e,
                     int (*visit)(struct p4_table *, struct p4_entry *, const uint64_t *, const uint64_t *))
{
    uint64_t mask[P4_MAX_KEY_WORDS], value[P4_MAX_KEY_WORDS];
    unsigned words = t->desc->key_words;
    const uint64_t *from = entry_value(t, e);
    for (unsigned i = 0; i < words; i++) {
        value[i] = from[i] & from[words + i];
        mask[i] = from[words + i];
    }
    struct expansion x = {mask, value, visit, P4_OK};
    expand(t, e, &x, 0, MAX_EXPANSION);
    return x.status;
}

static int visit_insert(struct p4_table *t, struct p4_entry *e, const uint64_t *mask, const uint64_t *value)
{
    return node_insert(t, e, mask, value);
}

static int visit_delete(struct p4_table *t, struct p4_entry *e, const uint64_t *mask, const uint64_t *value)
{
    node_delete(t, e, mask, value);
    return P4_OK;
}

/* --- entries --- */

static int same_key(const struct p4_table *t, const struct p4_entry *e, const struct p4_key *key)
{
    unsigned words = t->desc->key_words;
    const uint64_t *value = entry_value(t, e);
    if (e->order != key->order || !p4_words_equal(value, key->value, words))
        return 0;
    if (!p4_words_equal(value + words, key->mask, words))
        return 0;
    return t->desc->kind != P4_RANGE || p4_words_equal(value + 2 * words, key->high, words);
}

struct finder {
    const struct p4_key *key;
    struct p4_entry *found;
};

static _Thread_local struct finder finder;

/* Any one of the key's nodes leads to the entry if it exists: the first one does. */
static int visit_find(struct p4_table *t, struct p4_entry *e, const uint64_t *mask, const uint64_t *value)
{
    (void)e;
    int64_t tuple = tuple_find(t, mask);
    struct p4_node *node = tuple < 0 ? NULL : p4_table_probe(t, value, t->desc->key_words, (uint32_t)tuple);
    for (; node; node = node->next ? p4_table_node(t, node->next - 1) : NULL) {
        struct p4_entry *other = p4_table_at(t, node->entry);
        if (same_key(t, other, finder.key))
            finder.found = other;
    }
    return 1;
}

static void set_key(struct p4_table *t, struct p4_entry *e, const struct p4_key *key)
{
    unsigned words = t->desc->key_words;
    uint64_t *value = entry_value(t, e);
    memcpy(value, key->value, words * sizeof *value);
    memcpy(value + words, key->mask, words * sizeof *value);
    if (t->desc->kind == P4_RANGE)
        memcpy(value + 2 * words, key->high, words * sizeof *value);
    e->order = key->order;
}

struct p4_entry *p4_table_find(struct p4_table *t, const struct p4_key *key)
{
    struct p4_entry *probe = calloc(1, t->stride);
    if (!probe)
        return NULL;
    set_key(t, probe, key);
    finder = (struct finder){key, NULL};
    each_node(t, probe, visit_find);
    free(probe);
    return finder.found;
}

static int entries_grow(struct p4_table *t)
{
    uint32_t capacity = t->capacity ? 2 * t->capacity : 16;
    uint8_t *entries = realloc(t->entries, (size_t)capacity * t->stride);
    if (!entries)
        return P4_NO_MEMORY;
    t->entries = entries;
    if (t->desc->flags & P4_WITH_METER) {
        struct p4_meter *meters = realloc(t->meters, capacity * sizeof *meters);
        if (!meters)
            return P4_NO_MEMORY;
        t->meters = meters;
    }
    t->capacity = capacity;
    return P4_OK;
}

int p4_table_insert(struct p4_table *t, const struct p4_key *key, struct p4_act act, const uint64_t *args,
                    uint64_t now_ns, uint32_t *handle)
{
    if (p4_table_find(t, key))
        return P4_EXISTS;
    if (t->size >= t->desc->max_size)
        return P4_FULL;
    uint32_t index;
    if (t->free_entry) {
        index = t->free_entry - 1;
        t->free_entry = p4_table_at(t, index)->handle;
    } else {
        if (t->high_water == t->capacity && entries_grow(t) < 0)
            return P4_NO_MEMORY;
        index = t->high_water++;
    }
    struct p4_entry *e = p4_table_at(t, index);
    memset(e, 0, t->stride);
    e->act = act;
    e->handle = index;
    e->used = 1;
    e->hit_ns = now_ns;
    memcpy(e->data, args, t->desc->arg_words * sizeof *args);
    set_key(t, e, key);
    if (t->meters)
        memset(&t->meters[index], 0, sizeof *t->meters);
    t->size++;
    int status = each_node(t, e, visit_insert);
    if (status < 0) {
        p4_table_delete(t, index);
        return status;
    }
    *handle = index;
    return P4_OK;
}

int p4_table_delete(struct p4_table *t, uint32_t handle)
{
    if (handle >= t->high_water || !p4_table_at(t, handle)->used)
        return P4_NOT_FOUND;
    struct p4_entry *e = p4_table_at(t, handle);
    each_node(t, e, visit_delete);
    e->used = 0;
    e->handle = t->free_entry;
    t->free_entry = handle + 1;
    t->size--;
    return P4_OK;
}
