/* The reader and the writer of JSON: documents that must be read, those that must not, and damaged ones. */
#include "json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                                              \
	do {                                                                                                          \
		if (!(condition)) {                                                                                   \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);                               \
			exit(1);                                                                                      \
		}                                                                                                     \
	} while (0)

static struct json *read_copy(const char *text, char **copy)
{
	size_t length = strlen(text);

	/* Exactly as long as the text, so that the sanitizer notices a look beyond its end. */
	*copy = malloc(length ? length : 1);
	memcpy(*copy, text, length);
	return json_read(*copy, length);
}

static void reads(void)
{
	char *copy;
	struct json *root = read_copy("{\"ok\": true, \"n\": 18446744073709551615, \"m\": -3, \"r\": 2.5e1, \"t\": "
				      "\"a\\u00e9\\ud83d\\ude00\\n\\\"\", \"l\": [1, [], {\"x\": null}], \"f\": false}",
				      &copy);

	CHECK(root && json_bool(root, "ok", false) && !json_bool(root, "f", true));
	CHECK(json_number(root, "n", 0) == UINT64_MAX && json_number(root, "m", 7) == 7);
	CHECK(json_real(root, "m", 0) == -3 && json_real(root, "r", 0) == 25 && json_number(root, "r", 0) == 25);
	CHECK(!strcmp(json_text(root, "t", ""), "a\xc3\xa9\xf0\x9f\x98\x80\n\""));
	CHECK(json_count(json_get(root, "l")) == 3 && json_get(root, "l")->first->number == 1);
	CHECK(!json_get(root, "absent") && !strcmp(json_text(root, "n", "none"), "none"));
	json_free(root);
	free(copy);
}

static void refuses(void)
{
	static const char *const wrong[] = {"", "{", "[1,]", "{\"a\"}", "{\"a\":}", "nul", "\"", "\"\\", "\"\\u12",
					    "\"\\ud800\"", "1 2", "{\"a\":1,}", "-", "1e", "[1 2]", "\"\\x\"", "]"};
	char deep[201];
	char *copy;

	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		CHECK(!read_copy(wrong[i], &copy));
		free(copy);
	}
	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	CHECK(!read_copy(deep, &copy));
	free(copy);
}

/* What is written is read again, whatever is in it. */
static void writes(void)
{
	struct writer writer;
	struct json *root;
	char odd[] = "quote \" back \\ bell \a tab \t \xc3\xa9";

	write_begin(&writer, "verb");
	write_text(&writer, "odd", odd);
	write_open(&writer, "list", '[');
	for (uint64_t i = 0; i < 2000; i++)
		write_number(&writer, NULL, i);
	write_close(&writer, ']');
	write_open(&writer, "empty", '{');
	write_close(&writer, '}');
	write_signed(&writer, "below", -5);
	write_bool(&writer, "yes", true);
	write_null(&writer, "none");
	CHECK(write_end(&writer));
	root = json_read(writer.text, writer.used);
	CHECK(root && !strcmp(json_text(root, "op", ""), "verb") && !strcmp(json_text(root, "odd", ""), odd));
	CHECK(json_count(json_get(root, "list")) == 2000 && json_get(root, "empty")->type == JSON_OBJECT);
	CHECK(json_real(root, "below", 0) == -5 && json_bool(root, "yes", false));
	CHECK(json_get(root, "none")->type == JSON_NULL);
	json_free(root);
	write_free(&writer);
}

/* Damaged documents are read or refused, and nothing beside them is touched. */
static void survives(void)
{
	static const char sound[] = "{\"a\": [1, -2.5e3, \"x\\u0041\\n\", true, null, {\"b\": {}}], \"c\": \"\\\\\"}";
	uint32_t random = 12345;

	for (int round = 0; round < 200000; round++) {
		char *copy = malloc(sizeof(sound) - 1);
		size_t length = sizeof(sound) - 1;

		memcpy(copy, sound, length);
		for (int change = 0; change < 3; change++) {
			random = random * 1664525 + 1013904223;
			copy[(random >> 8) % length] = "{}[]\",:\\u0e-\n\x80t"[random >> 28];
		}
		random = random * 1664525 + 1013904223;
		length -= (random >> 16) % 8;
		json_free(json_read(copy, length));
		free(copy);
	}
}

int main(void)
{
	reads();
	refuses();
	writes();
	survives();
	return 0;
}
