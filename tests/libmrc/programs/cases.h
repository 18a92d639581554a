/* A program of several cases: `PROGRAM CASE SOCKET SOCKET`. Each ends with 0, or says which check failed. */
#ifndef CASES_H
#define CASES_H

#include "ends.h"

struct test_case {
	const char *name;
	void (*run)(void);
};

/* The sockets of the agents of two hosts. */
static const char *paths[2];

static inline void fill(unsigned char *memory, size_t length, unsigned int seed)
{
	for (size_t i = 0; i < length; i++)
		memory[i] = (unsigned char)(i * 7 + seed);
}

static inline int run_case(const struct test_case *cases, size_t number, int count, char **arguments)
{
	CHECK(count == 4);
	paths[0] = arguments[2];
	paths[1] = arguments[3];
	for (size_t i = 0; i < number; i++) {
		if (!strcmp(cases[i].name, arguments[1])) {
			cases[i].run();
			return 0;
		}
	}
	return 2;
}

#endif
