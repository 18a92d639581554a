#include "json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEPTH 64

struct reader {
	char *at;
	char *end;
	bool out_of_memory;
};

static void skip_space(struct reader *reader)
{
	while (reader->at < reader->end && strchr(" \t\r\n", *reader->at))
		reader->at++;
}

static bool accept(struct reader *reader, char wanted)
{
	skip_space(reader);
	if (reader->at == reader->end || *reader->at != wanted)
		return false;
	reader->at++;
	return true;
}

static bool accept_word(struct reader *reader, const char *word)
{
	size_t length = strlen(word);

	if ((size_t)(reader->end - reader->at) < length || memcmp(reader->at, word, length))
		return false;
	reader->at += length;
	return true;
}

static int hex_digit(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	if (digit >= 'a' && digit <= 'f')
		return digit - 'a' + 10;
	if (digit >= 'A' && digit <= 'F')
		return digit - 'A' + 10;
	return -1;
}

static bool read_code(struct reader *reader, uint32_t *code)
{
	*code = 0;
	if (reader->end - reader->at < 4)
		return false;
	for (int i = 0; i < 4; i++) {
		int digit = hex_digit(*reader->at++);

		if (digit < 0)
			return false;
		*code = *code * 16 + (uint32_t)digit;
	}
	return true;
}

static char *put_utf8(char *to, uint32_t code)
{
	if (code < 0x80) {
		*to++ = (char)code;
	} else if (code < 0x800) {
		*to++ = (char)(0xc0 | code >> 6);
		*to++ = (char)(0x80 | (code & 0x3f));
	} else if (code < 0x10000) {
		*to++ = (char)(0xe0 | code >> 12);
		*to++ = (char)(0x80 | (code >> 6 & 0x3f));
		*to++ = (char)(0x80 | (code & 0x3f));
	} else {
		*to++ = (char)(0xf0 | code >> 18);
		*to++ = (char)(0x80 | (code >> 12 & 0x3f));
		*to++ = (char)(0x80 | (code >> 6 & 0x3f));
		*to++ = (char)(0x80 | (code & 0x3f));
	}
	return to;
}

/* Read a string in place: what it means is never longer than how it is written. */
static const char *read_string(struct reader *reader)
{
	char *start = reader->at;
	char *to = start;

	while (reader->at < reader->end) {
		char character = *reader->at++;

		if (character == '"') {
			*to = '\0';
			return start;
		}
		if (character != '\\') {
			*to++ = character;
			continue;
		}
		if (reader->at == reader->end)
			return NULL;
		character = *reader->at++;
		if (character == 'u') {
			uint32_t code, low;

			if (!read_code(reader, &code))
				return NULL;
			if (code >= 0xd800 && code < 0xdc00) {
				if (!accept_word(reader, "\\u") || !read_code(reader, &low) || low < 0xdc00 || low > 0xdfff)
					return NULL;
				code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
			}
			to = put_utf8(to, code ? code : ' ');
		} else {
			static const char written[] = "\"\\/bfnrt";
			static const char meant[] = "\"\\/\b\f\n\r\t";
			const char *found = character ? strchr(written, character) : NULL;

			if (!found)
				return NULL;
			*to++ = meant[found - written];
		}
	}
	return NULL;
}

static bool read_number(struct reader *reader, struct json *value)
{
	char copy[64];
	size_t length = 0;
	char *end;

	while (reader->at < reader->end && length < sizeof(copy) - 1 && strchr("+-.0123456789eE", *reader->at))
		copy[length++] = *reader->at++;
	copy[length] = '\0';
	if (!length)
		return false;
	value->type = JSON_NUMBER;
	value->negative = copy[0] == '-';
	value->real = strtod(copy, &end);
	if (*end)
		return false;
	if (strpbrk(copy, ".eE"))
		value->number = value->real < 0 ? (uint64_t)-value->real : (uint64_t)value->real;
	else
		value->number = strtoull(copy + value->negative, NULL, 10);
	return true;
}

static struct json *read_value(struct reader *reader, int depth);

static bool read_members(struct reader *reader, struct json *parent, char closing, int depth)
{
	struct json **last = &parent->first;

	if (accept(reader, closing))
		return true;
	do {
		const char *key = NULL;

		if (parent->type == JSON_OBJECT) {
			if (!accept(reader, '"') || !(key = read_string(reader)) || !accept(reader, ':'))
				return false;
		}
		*last = read_value(reader, depth + 1);
		if (!*last)
			return false;
		(*last)->key = key;
		last = &(*last)->next;
	} while (accept(reader, ','));
	return accept(reader, closing);
}

static struct json *read_value(struct reader *reader, int depth)
{
	struct json *value = depth < DEPTH ? calloc(1, sizeof(*value)) : NULL;
	bool good = false;

	if (!value) {
		reader->out_of_memory = depth < DEPTH;
		return NULL;
	}
	skip_space(reader);
	if (reader->at == reader->end) {
		good = false;
	} else if (accept(reader, '{')) {
		value->type = JSON_OBJECT;
		good = read_members(reader, value, '}', depth);
	} else if (accept(reader, '[')) {
		value->type = JSON_ARRAY;
		good = read_members(reader, value, ']', depth);
	} else if (accept(reader, '"')) {
		value->type = JSON_STRING;
		value->text = read_string(reader);
		good = value->text != NULL;
	} else if (accept_word(reader, "true")) {
		value->type = JSON_BOOL;
		value->number = 1;
		good = true;
	} else if (accept_word(reader, "false")) {
		value->type = JSON_BOOL;
		good = true;
	} else if (accept_word(reader, "null")) {
		good = true;
	} else {
		good = read_number(reader, value);
	}
	if (good)
		return value;
	json_free(value);
	return NULL;
}

struct json *json_read(char *text, size_t length)
{
	struct reader reader = {.at = text, .end = text + length};
	struct json *root = read_value(&reader, 0);

	if (!root) {
		errno = reader.out_of_memory ? ENOMEM : EPROTO;
		return NULL;
	}
	skip_space(&reader);
	if (reader.at != reader.end) {
		json_free(root);
		errno = EPROTO;
		return NULL;
	}
	return root;
}

void json_free(struct json *root)
{
	while (root) {
		struct json *next = root->next;

		json_free(root->first);
		free(root);
		root = next;
	}
}

const struct json *json_get(const struct json *object, const char *key)
{
	if (!object || object->type != JSON_OBJECT)
		return NULL;
	for (const struct json *member = object->first; member; member = member->next)
		if (!strcmp(member->key, key))
			return member;
	return NULL;
}

uint64_t json_number(const struct json *object, const char *key, uint64_t otherwise)
{
	const struct json *found = json_get(object, key);

	return found && found->type == JSON_NUMBER && !found->negative ? found->number : otherwise;
}

double json_real(const struct json *object, const char *key, double otherwise)
{
	const struct json *found = json_get(object, key);

	return found && found->type == JSON_NUMBER ? found->real : otherwise;
}

bool json_bool(const struct json *object, const char *key, bool otherwise)
{
	const struct json *found = json_get(object, key);

	return found && found->type == JSON_BOOL ? found->number != 0 : otherwise;
}

const char *json_text(const struct json *object, const char *key, const char *otherwise)
{
	const struct json *found = json_get(object, key);

	return found && found->type == JSON_STRING ? found->text : otherwise;
}

size_t json_count(const struct json *array)
{
	size_t count = 0;

	for (const struct json *each = array ? array->first : NULL; each; each = each->next)
		count++;
	return count;
}

static void put(struct writer *writer, const char *text, size_t length)
{
	if (writer->failed)
		return;
	if (writer->room - writer->used < length + 1) {
		size_t room = (writer->room + length + 256) * 2;
		char *grown = realloc(writer->text, room);

		if (!grown) {
			writer->failed = true;
			return;
		}
		writer->text = grown;
		writer->room = room;
	}
	memcpy(writer->text + writer->used, text, length);
	writer->used += length;
	writer->text[writer->used] = '\0';
}

static void put_text(struct writer *writer, const char *text)
{
	put(writer, "\"", 1);
	for (; *text; text++) {
		unsigned char character = (unsigned char)*text;
		char escaped[8];

		if (character == '"' || character == '\\') {
			escaped[0] = '\\';
			escaped[1] = (char)character;
			put(writer, escaped, 2);
		} else if (character < 0x20) {
			put(writer, escaped, (size_t)snprintf(escaped, sizeof(escaped), "\\u%04x", character));
		} else {
			put(writer, text, 1);
		}
	}
	put(writer, "\"", 1);
}

static void put_key(struct writer *writer, const char *key)
{
	if (writer->comma)
		put(writer, ",", 1);
	writer->comma = true;
	if (key) {
		put_text(writer, key);
		put(writer, ":", 1);
	}
}

void write_begin(struct writer *writer, const char *verb)
{
	memset(writer, 0, sizeof(*writer));
	put(writer, "{", 1);
	if (verb)
		write_text(writer, "op", verb);
}

void write_number(struct writer *writer, const char *key, uint64_t value)
{
	char digits[24];

	put_key(writer, key);
	put(writer, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, value));
}

void write_signed(struct writer *writer, const char *key, int64_t value)
{
	char digits[24];

	put_key(writer, key);
	put(writer, digits, (size_t)snprintf(digits, sizeof(digits), "%" PRId64, value));
}

void write_real(struct writer *writer, const char *key, double value)
{
	char digits[40];
	int length = snprintf(digits, sizeof(digits), "%.17g", value);

	/* JSON has a point, whatever the program's locale has, and neither infinity nor a NaN. */
	for (int i = 0; i < length; i++)
		if (digits[i] == ',')
			digits[i] = '.';
	put_key(writer, key);
	if (value - value != 0)
		put(writer, "null", 4);
	else
		put(writer, digits, (size_t)length);
}

void write_bool(struct writer *writer, const char *key, bool value)
{
	put_key(writer, key);
	put(writer, value ? "true" : "false", value ? 4 : 5);
}

void write_text(struct writer *writer, const char *key, const char *value)
{
	put_key(writer, key);
	put_text(writer, value);
}

void write_null(struct writer *writer, const char *key)
{
	put_key(writer, key);
	put(writer, "null", 4);
}

void write_open(struct writer *writer, const char *key, char bracket)
{
	put_key(writer, key);
	put(writer, &bracket, 1);
	writer->comma = false;
}

void write_close(struct writer *writer, char bracket)
{
	put(writer, &bracket, 1);
	writer->comma = true;
}

bool write_end(struct writer *writer)
{
	put(writer, "}", 1);
	return !writer->failed;
}

void write_free(struct writer *writer)
{
	free(writer->text);
	memset(writer, 0, sizeof(*writer));
}
