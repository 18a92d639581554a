/* JSON as the agent speaks it: a writer of one object, and a reader into a tree. */
#ifndef LIBMRC_JSON_H
#define LIBMRC_JSON_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum json_type { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT };

/* A value. `number` is the magnitude of a whole number, `negative` its sign; `real` is any number, rounded. */
struct json {
	enum json_type type;
	bool negative;
	uint64_t number;
	double real;
	const char *text;
	const char *key;
	struct json *first;
	struct json *next;
};

/* Read a document; its strings lie in `text`, which is changed and must live as long as the tree. NULL: none, or no
 * memory (errno EPROTO, ENOMEM). */
struct json *json_read(char *text, size_t length);
void json_free(struct json *root);

/* Members of an object; the functions with a default return it for what is absent or of another type. */
const struct json *json_get(const struct json *object, const char *key);
uint64_t json_number(const struct json *object, const char *key, uint64_t otherwise);
double json_real(const struct json *object, const char *key, double otherwise);
bool json_bool(const struct json *object, const char *key, bool otherwise);
const char *json_text(const struct json *object, const char *key, const char *otherwise);
size_t json_count(const struct json *array);

/* A request under construction. `key` is NULL inside of arrays. After a failed allocation `failed` is true, and nothing
 * more is written. */
struct writer {
	char *text;
	size_t used;
	size_t room;
	bool failed;
	bool comma;
};

/* Begin `{"op": verb`, or any object where `verb` is NULL. */
void write_begin(struct writer *writer, const char *verb);
void write_number(struct writer *writer, const char *key, uint64_t value);
void write_signed(struct writer *writer, const char *key, int64_t value);
void write_real(struct writer *writer, const char *key, double value);
void write_bool(struct writer *writer, const char *key, bool value);
void write_text(struct writer *writer, const char *key, const char *value);
void write_null(struct writer *writer, const char *key);
/* `bracket`: '{' or '['; what follows is inside until `write_close` with '}' or ']'. */
void write_open(struct writer *writer, const char *key, char bracket);
void write_close(struct writer *writer, char bracket);
/* End the object that `write_begin` began; returns false after a failed allocation. */
bool write_end(struct writer *writer);
void write_free(struct writer *writer);

#endif
