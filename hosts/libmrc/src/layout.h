/* What a program and the agent share; the same as `mrc_host/verbs/layout.py`, which tests/libmrc compares. */
#ifndef LIBMRC_LAYOUT_H
#define LIBMRC_LAYOUT_H

#include <stdint.h>

#define LAYOUT_VERSION 2

#define RING_HEAD_BYTES 128
#define RING_TAIL 0
#define RING_NOTED 1
#define RING_HEAD 8

#define MAX_SGE 16
#define INLINE_BYTES 256
#define EVENT_TEXT_BYTES 108

enum ring_opcode {
	RING_WRITE = 1,
	RING_WRITE_IMM = 2,
	RING_RECV = 3,
	RING_NOTIFY = 4,
	RING_SEND = 5,
	RING_SEND_IMM = 6,
	RING_READ = 7,
	RING_COMPARE_SWAP = 8,
	RING_FETCH_ADD = 9,
	RING_RECV_INTO = 10,
	RING_SRQ_RECV = 11
};

/* A scatter-gather element. */
struct ring_element {
	uint64_t address;
	uint32_t length;
	uint32_t key;
};

/* A work request. `number`: of the queue pair, or of the queue. */
struct ring_request {
	uint8_t opcode;
	uint8_t flags;
	uint16_t elements;
	uint32_t number;
	uint64_t wr_id;
	uint64_t remote;
	uint32_t key;
	uint32_t immediate;
	uint32_t inline_bytes;
	uint32_t unused1;
	uint64_t operand;
	uint64_t swap;
	uint64_t unused2;
	union {
		struct ring_element element[MAX_SGE];
		uint8_t bytes[INLINE_BYTES];
	} data;
};

/* `ended`: how many requests of that queue of the queue pair have ended so far. */
struct ring_completion {
	uint64_t wr_id;
	uint16_t status;
	uint16_t opcode;
	uint32_t qp_num;
	uint32_t byte_len;
	uint32_t immediate;
	uint32_t flags;
	uint32_t ended;
};

struct ring_event {
	uint32_t type;
	uint32_t element;
	uint32_t ev;
	uint32_t plane;
	uint32_t losses;
	char text[EVENT_TEXT_BYTES];
};

_Static_assert(sizeof(struct ring_request) == 320, "an entry of the ring of work requests has 320 bytes");
_Static_assert(sizeof(struct ring_completion) == 32, "an entry of a ring of completions has 32 bytes");
_Static_assert(sizeof(struct ring_event) == 128, "an entry of the ring of events has 128 bytes");

#endif
