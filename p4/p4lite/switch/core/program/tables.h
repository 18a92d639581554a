/* Match tables by tuple space search.
 *
 * A key is an array of 64-bit words; the program's layout (p4lite/switch/program/layout.py) says where each key field
 * lies. Entries with the same mask form a tuple; one hash table per match table is keyed by tuple and masked key.
 *   exact      one tuple, one probe
 *   lpm        a tuple per prefix length, longest first; the first hit is the answer
 *   ternary    a tuple per mask, ordered by its best priority; the search ends when no later tuple can beat the hit
 *   range      as ternary: a range becomes the prefixes that cover it (up to a limit, above it "any"), and what is
 *              found is checked against the true bounds
 * Among equal priorities the lower handle wins. All functions here want the instance's lock held. */
#ifndef P4LITE_TABLES_H
#define P4LITE_TABLES_H

#include "arrays.h"

enum p4_match_kind { P4_EXACT, P4_LPM, P4_TERNARY, P4_RANGE };
enum p4_ref_kind { P4_REF_NONE, P4_REF_ACTION, P4_REF_MEMBER, P4_REF_GROUP };
enum p4_table_flags { P4_WITH_COUNTERS = 1, P4_WITH_TIMEOUT = 2, P4_WITH_METER = 4 };

/* Result of control operations. */
enum p4_status {
    P4_OK = 0,
    P4_NOT_FOUND = -1,
    P4_EXISTS = -2,
    P4_FULL = -3,
    P4_CONST = -4,
    P4_INVALID = -5,
    P4_NO_MEMORY = -6,
};

#define P4_MAX_KEY_WORDS 256

/* Where a range field lies in the key: words from `word` on, the most significant first. */
struct p4_range_field {
    uint16_t word, words;
    uint8_t shift; /* within the word, for fields of up to 64 bits */
    uint8_t width; /* 1 to 64; above 64 bits: words > 1 and the field fills them */
};

struct p4_table_desc {
    const char *name;
    uint8_t kind, flags;
    uint16_t key_words, arg_words;
    uint16_t n_ranges;
    const struct p4_range_field *ranges;
    uint32_t max_size;
    int32_t profile; /* -1: entries name actions */
    uint8_t meter_bytes; /* direct meter: 1 bytes, 0 packets */
};

/* What an entry, a default entry or a member does. */
struct p4_act {
    uint32_t kind;   /* enum p4_ref_kind */
    int32_t number;  /* action index, member slot or group slot */
};

struct p4_entry {
    struct p4_act act;
    uint32_t handle;
    uint8_t used, is_const, check_range;
    int64_t order; /* lower wins: priority, or key width minus prefix length */
    uint64_t hit_ns, timeout_ns, reported_ns; /* last hit; idle timeout, 0: none; last told to be idle */
    struct p4_counter counter;
    uint64_t data[]; /* args, then value, mask and high words */
};

struct p4_node; /* a masked key of a tuple and the entries under it */

struct p4_tuple {
    int64_t best; /* no entry of the tuple has a lower order */
    uint32_t entries, used;
};

struct p4_slot {
    uint32_t hash, node; /* node index + 1, 0: empty */
};

struct p4_table {
    const struct p4_table_desc *desc;
    uint32_t stride, capacity, size, high_water; /* entries: bytes each, allocated, used, ever used */
    uint32_t free_entry;                         /* head of the free list + 1 */
    uint8_t *entries;
    struct p4_meter *meters; /* direct, by handle */
    struct p4_entry *default_entry;
    struct p4_meter default_meter;

    struct p4_slot *slots;
    uint32_t slot_mask, nodes_used, nodes_capacity, free_node;
    uint32_t node_stride;
    uint8_t *nodes;
    struct p4_tuple *tuples;
    uint64_t *masks;  /* key_words per tuple */
    uint32_t *order;  /* tuples, best first */
    uint32_t n_tuples, n_order, tuples_capacity;
};

struct p4_node {
    uint32_t entry, next; /* handle; next node with the same tuple and key + 1, in order */
    uint32_t tuple, hash;
    uint64_t key[];
};

/* A match key: value and mask words; high words for range tables. Words not covered by a mask are 0. */
struct p4_key {
    const uint64_t *value, *mask, *high;
    int64_t order;
};

int p4_table_init(struct p4_table *t, const struct p4_table_desc *desc);
void p4_table_free(struct p4_table *t);
/* Removes every entry; the default entry becomes "nothing". */
void p4_table_clear(struct p4_table *t);
int p4_table_insert(struct p4_table *t, const struct p4_key *key, struct p4_act act, const uint64_t *args,
                    uint64_t now_ns, uint32_t *handle);
int p4_table_delete(struct p4_table *t, uint32_t handle);
/* The entry with exactly this key and order, or NULL. */
struct p4_entry *p4_table_find(struct p4_table *t, const struct p4_key *key);

static inline struct p4_entry *p4_table_at(const struct p4_table *t, uint32_t handle)
{
    return (struct p4_entry *)(void *)(t->entries + (size_t)t->stride * handle);
}

static inline struct p4_node *p4_table_node(const struct p4_table *t, uint32_t index)
{
    return (struct p4_node *)(void *)(t->nodes + (size_t)t->node_stride * index);
}

/* Slots are chosen by the lowest bits of the hash, but a product's lowest bits depend on the lowest bits of its factors
 * alone, which are 0 in all prefixes of a table. The upper half of a second product depends on all bits. */
static inline __attribute__((always_inline)) uint32_t p4_key_hash(const uint64_t *key, unsigned words, uint32_t tuple)
{
    uint64_t h = UINT64_C(0x9E3779B97F4A7C15) * (tuple + 1u);
    for (unsigned i = 0; i < words; i++) {
        h = (h ^ key[i]) * UINT64_C(0xD6E8FEB86659FD93);
        h ^= h >> 32;
    }
    return (uint32_t)(h * UINT64_C(0x9FB21C651E98DF25) >> 32);
}

static inline __attribute__((always_inline)) int p4_words_equal(const uint64_t *a, const uint64_t *b, unsigned words)
{
    uint64_t differ = 0;
    for (unsigned i = 0; i < words; i++)
        differ |= a[i] ^ b[i];
    return differ == 0;
}

/* First node of the chain for a masked key of a tuple, or NULL. */
static inline __attribute__((always_inline)) struct p4_node *p4_table_probe(const struct p4_table *t,
                                                                            const uint64_t *key, unsigned words,
                                                                            uint32_t tuple)
{
    uint32_t hash = p4_key_hash(key, words, tuple);
    for (uint32_t i = hash & t->slot_mask;; i = (i + 1) & t->slot_mask) {
        struct p4_slot s = t->slots[i];
        if (s.node == 0)
            return NULL;
        if (s.hash == hash) {
            struct p4_node *node = p4_table_node(t, s.node - 1);
            if (node->tuple == tuple && p4_words_equal(node->key, key, words))
                return node;
        }
    }
}

/* Whether key lies within the range fields of an entry. */
int p4_entry_in_range(const struct p4_table *t, const struct p4_entry *e, const uint64_t *key);

/* The winning entry or NULL. `words` is the table's key_words, a constant in generated code. */
static inline __attribute__((always_inline)) struct p4_entry *p4_table_lookup(const struct p4_table *t,
                                                                              const uint64_t *key, unsigned words,
                                                                              int kind)
{
    if (t->size == 0)
        return NULL;
    if (kind == P4_EXACT) {
        struct p4_node *node = p4_table_probe(t, key, words, 0);
        return node ? p4_table_at(t, node->entry) : NULL;
    }
    struct p4_entry *best = NULL;
    uint64_t masked[words ? words : 1];
    for (uint32_t i = 0; i < t->n_order; i++) {
        uint32_t tuple = t->order[i];
        if (best && t->tuples[tuple].best > best->order)
            break;
        const uint64_t *mask = t->masks + (size_t)tuple * words;
        for (unsigned w = 0; w < words; w++)
            masked[w] = key[w] & mask[w];
        struct p4_node *node = p4_table_probe(t, masked, words, tuple);
        if (kind == P4_LPM) {
            if (node)
                return p4_table_at(t, node->entry);
            continue;
        }
        for (; node; node = node->next ? p4_table_node(t, node->next - 1) : NULL) {
            struct p4_entry *e = p4_table_at(t, node->entry);
            if (best && (e->order > best->order || (e->order == best->order && e->handle > best->handle)))
                break;
            if (kind == P4_RANGE && e->check_range && !p4_entry_in_range(t, e, key))
                continue;
            best = e;
            break;
        }
    }
    return best;
}

#endif
