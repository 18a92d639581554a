/*
 * A program's ways to the agent of its host: the connection of a device, with file descriptors beside requests and
 * answers, and the control socket, which takes requests of the agent's own user alone.
 */
#ifndef LIBMRC_CONNECTION_H
#define LIBMRC_CONNECTION_H

#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

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
	json_t *root;
	int files[CONNECTION_FILES];
	int count;
};

/* Return 0, or an errno. A path that begins with no '/' is relative to the working directory. */
int connection_open(struct connection *connection, const char *path);
void connection_close(struct connection *connection);

/* A request to a device: its operation, and the format and values of its other members, as `json_pack` takes them. A
 * whole number is an `INT` of format `I`. */
#define REQUEST(operation, format, ...) json_pack("{ss" format "}", "op", operation, ##__VA_ARGS__)
#define INT(value) ((json_int_t)(value))

/* Ask the agent; the request is used up, and NULL is one for which there was no memory. `send_fd`: a file descriptor to go
 * beside the request, or -1. Returns 0, or the errno of a refusal, of which a line goes to stderr; ENODEV when the agent is
 * gone, or this process is a forked child. `answer` may be NULL where only success counts. */
int connection_ask(struct connection *connection, json_t *request, int send_fd, struct answer *answer);
void answer_free(struct answer *answer);
/* Close the files of an answer that are not wanted, and free it. */
void answer_refuse(struct answer *answer);

/* The same by the control socket beside a device's socket; errors besides: EPERM without the rights, ENODEV without an
 * agent. `root` may be NULL where only success counts, and else is the caller's. */
int control_ask(const char *device, json_t *request, json_t **root);
/* Return whether this process may command the agent behind a device's socket: 0, or an errno (EPERM: it may not). */
int control_may(const char *device);

/* Members of an answer; these return `otherwise` for what is absent or of another type. */
uint64_t number_in(const json_t *object, const char *key, uint64_t otherwise);
bool bool_in(const json_t *object, const char *key, bool otherwise);
const char *text_in(const json_t *object, const char *key, const char *otherwise);

/* Return whether the agent of a device is gone; asks the kernel. */
bool connection_lost(struct connection *connection);

/* Print one line to stderr, unless MRCLAB_MESSAGES=0. */
void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* The same; returns the errno with which something is refused, for which the line has the reason. */
int refused(int number, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
