/* A program's connection to the agent of its host: requests, their answers, file descriptors beside them. */
#ifndef LIBMRC_CONNECTION_H
#define LIBMRC_CONNECTION_H

#include "json.h"

#include <pthread.h>
#include <stdatomic.h>

#define CONNECTION_FILES 8
#define CONNECTION_PATH 108

enum connection_state { CONNECTION_OPEN, CONNECTION_LOST, CONNECTION_FORKED };

struct connection {
	int fd;
	_Atomic int state;
	pthread_mutex_t lock;
	char path[CONNECTION_PATH];
};

/* An answer: a tree, and file descriptors, which the caller owns. */
struct answer {
	struct json *root;
	char *text;
	int files[CONNECTION_FILES];
	int count;
};

/* Return 0, or an errno. A path that begins with no '/' is relative to the working directory. */
int connection_open(struct connection *connection, const char *path);
void connection_close(struct connection *connection);

/* Ask the agent; `writer` is ended and freed, whatever happens. `send_fd`: a file descriptor to go beside the request,
 * or -1. Returns 0, or the errno of a refusal, of which a line goes to stderr; ENODEV when the agent is gone, or this
 * process is a forked child. `answer` may be NULL where only success counts. */
int connection_ask(struct connection *connection, struct writer *writer, int send_fd, struct answer *answer);
void answer_free(struct answer *answer);

/* Return whether the agent is gone; asks the kernel. */
bool connection_lost(struct connection *connection);

/* Print one line to stderr, unless MRCLAB_MESSAGES=0. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
