/* Requests to the control socket of an agent, which takes those of its own user alone. */
#ifndef LIBMRC_CONTROL_H
#define LIBMRC_CONTROL_H

#include "json.h"

/* Return whether this process may command the agent behind a device's socket: 0, or an errno (EPERM: it may not). */
int control_may(const char *device);
/* Ask the agent; `writer` is ended and freed, whatever happens. Returns 0, or the errno of a refusal, of which a line goes
 * to stderr; EPERM without the rights, ENODEV without an agent. Where it returns 0, `root` and `text` are to be freed by
 * `control_free`. Both may be NULL where only success counts. */
struct control_answer {
	struct json *root;
	char *text;
};
int control_ask(const char *device, struct writer *writer, struct control_answer *answer);
void control_free(struct control_answer *answer);
/* Begin `{"verb": verb`. */
void control_begin(struct writer *writer, const char *verb);

#endif
