/* What a library says of its own structures and enumerations. A binding builds its own from this when it loads the
 * library (`native/description.py`), so that nothing of it is written down twice; a field that a list forgets makes
 * the layouts differ, and the library is refused. */
#ifndef P4LITE_DESCRIBE_H
#define P4LITE_DESCRIBE_H

#include <stddef.h>
#include <stdint.h>

/* A structure (type "struct", value 0), one of its fields (value: offset), or a constant (type NULL). */
struct p4_described {
    const char *owner; /* the structure or enumeration */
    const char *name;  /* of the field or constant; of a structure "" */
    const char *type;  /* of a field: a letter as in Python's struct module, or the name of a structure */
    int64_t value;
    uint32_t size, count; /* bytes in all; elements of an array, else 1 */
};
_Static_assert(sizeof(struct p4_described) == 40 && offsetof(struct p4_described, value) == 24 &&
                   offsetof(struct p4_described, size) == 32,
               "native/description.py reads the rows as =PPPqII");

struct p4_description {
    const struct p4_described *rows;
    uint64_t count;
};

#define P4_TYPE(x) \
    _Generic((x), int8_t: "b", uint8_t: "B", int16_t: "h", uint16_t: "H", int32_t: "i", uint32_t: "I", \
        int64_t: "q", uint64_t: "Q", double: "d", default: "P")
#define P4_AT(s, f) (((struct s *)0)->f)

#define P4_STRUCT(s) {#s, "", "struct", 0, sizeof(struct s), 1}
#define P4_FIELD(s, f) {#s, #f, P4_TYPE(P4_AT(s, f)), offsetof(struct s, f), sizeof(P4_AT(s, f)), 1}
#define P4_ARRAY(s, f) \
    {#s, #f, P4_TYPE(P4_AT(s, f)[0]), offsetof(struct s, f), sizeof(P4_AT(s, f)), \
     sizeof(P4_AT(s, f)) / sizeof(P4_AT(s, f)[0])}
/* A field that is a `struct t`, or an array of them. */
#define P4_NESTED(s, f, t) \
    {#s, #f, #t, offsetof(struct s, f), sizeof(P4_AT(s, f)), sizeof(P4_AT(s, f)) / sizeof(struct t)}
/* The constant `prefix##n`; a binding calls it by `n` in lower case. */
#define P4_CONSTANT(e, prefix, n) {#e, #n, NULL, (int64_t)(prefix##n), 0, 1}

#endif
