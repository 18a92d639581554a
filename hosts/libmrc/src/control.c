#include "control.h"

#include "connection.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define DEVICE_SUFFIX ".verbs"
#define CONTROL_SUFFIX ".sock"
#define TIMEOUT_S 30
#define MAX_ANSWER (64U << 20)

/* Connect to the control socket beside a device's socket; returns a file descriptor, or a negative errno. */
static int open_control(const char *device)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval timeout = {.tv_sec = TIMEOUT_S};
	size_t length = strlen(device);
	int fd, failed;

	if (length > strlen(DEVICE_SUFFIX) && !strcmp(device + length - strlen(DEVICE_SUFFIX), DEVICE_SUFFIX))
		length -= strlen(DEVICE_SUFFIX);
	if (length + sizeof(CONTROL_SUFFIX) > sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, device, length);
	memcpy(address.sun_path + length, CONTROL_SUFFIX, sizeof(CONTROL_SUFFIX));
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	do {
		failed = connect(fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	} while (failed == EINTR);
	if (!failed)
		return fd;
	close(fd);
	if (failed == EACCES || failed == EPERM)
		return -EPERM;
	say("%s: no agent answers (%s)", address.sun_path, strerror(failed));
	return -ENODEV;
}

int control_may(const char *device)
{
	int fd = open_control(device);

	if (fd < 0)
		return -fd;
	close(fd);
	return 0;
}

static int send_all(int fd, const char *text, size_t length)
{
	while (length) {
		ssize_t sent = send(fd, text, length, MSG_NOSIGNAL);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return ENODEV;
		text += sent;
		length -= (size_t)sent;
	}
	return 0;
}

/* Receive a line into memory that is the caller's to free. */
static int receive_line(int fd, char **text, size_t *length)
{
	size_t room = 0, used = 0;

	*text = NULL;
	for (;;) {
		ssize_t received;
		char *end;

		if (room - used < 4096) {
			char *grown = room < MAX_ANSWER ? realloc(*text, room = room * 2 + (1U << 16)) : NULL;

			if (!grown)
				return ENOMEM;
			*text = grown;
		}
		received = recv(fd, *text + used, room - used, 0);
		if (received < 0 && errno == EINTR)
			continue;
		if (received <= 0) {
			say("the agent %s", received < 0 ? "does not answer in 30 s" : "is gone");
			return ENODEV;
		}
		end = memchr(*text + used, '\n', (size_t)received);
		used += (size_t)received;
		if (end) {
			*length = (size_t)(end - *text);
			return 0;
		}
	}
}

void control_begin(struct writer *writer, const char *verb)
{
	write_begin(writer, NULL);
	write_text(writer, "verb", verb);
}

int control_ask(const char *device, struct writer *writer, struct control_answer *answer)
{
	struct control_answer own;
	struct control_answer *to = answer ? answer : &own;
	size_t length = 0;
	int fd = -1, failed = write_end(writer) ? 0 : ENOMEM;

	memset(to, 0, sizeof(*to));
	if (!failed) {
		fd = open_control(device);
		failed = fd < 0 ? -fd : 0;
	}
	if (!failed)
		failed = send_all(fd, writer->text, writer->used);
	if (!failed)
		failed = send_all(fd, "\n", 1);
	if (!failed)
		failed = receive_line(fd, &to->text, &length);
	if (fd >= 0)
		close(fd);
	write_free(writer);
	if (!failed && !(to->root = json_read(to->text, length)))
		failed = errno;
	if (!failed && !json_bool(to->root, "ok", false)) {
		failed = (int)json_number(to->root, "errno", EIO);
		failed = failed ? failed : EIO;
		say("%s (%s)", json_text(to->root, "error", "refused"), strerror(failed));
	}
	if (failed || !answer)
		control_free(to);
	return failed;
}

void control_free(struct control_answer *answer)
{
	json_free(answer->root);
	free(answer->text);
	answer->root = NULL;
	answer->text = NULL;
}
