#include "connection.h"

#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_BYTES (1 << 20)
#define TIMEOUT_S 30

void say(const char *format, ...)
{
	const char *wanted = getenv("MRCLAB_MESSAGES");
	char line[512];
	va_list arguments;
	int kept = errno;

	if (wanted && !strcmp(wanted, "0"))
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	fprintf(stderr, "libmrc: %s\n", line);
	errno = kept;
}

int connection_open(struct connection *connection, const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval timeout = {.tv_sec = TIMEOUT_S};
	int failed;

	memset(connection, 0, sizeof(*connection));
	connection->fd = -1;
	if (strlen(path) >= sizeof(address.sun_path)) {
		say("device %s: the path of a socket has fewer than %zu bytes", path, sizeof(address.sun_path));
		return ENAMETOOLONG;
	}
	strcpy(address.sun_path, path);
	strcpy(connection->path, path);
	connection->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (connection->fd < 0)
		return errno;
	setsockopt(connection->fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(connection->fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	do {
		failed = connect(connection->fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	} while (failed == EINTR);
	if (failed) {
		say("device %s: no agent answers (%s); is the lab up, and the program in a host of it?", path, strerror(failed));
		close(connection->fd);
		connection->fd = -1;
		return failed;
	}
	pthread_mutex_init(&connection->lock, NULL);
	return 0;
}

void connection_close(struct connection *connection)
{
	if (connection->fd >= 0)
		close(connection->fd);
	connection->fd = -1;
	pthread_mutex_destroy(&connection->lock);
}

static int lose(struct connection *connection, const char *why)
{
	int open = CONNECTION_OPEN;

	if (atomic_compare_exchange_strong(&connection->state, &open, CONNECTION_LOST))
		say("device %s: %s", connection->path, why);
	return ENODEV;
}

bool connection_lost(struct connection *connection)
{
	struct pollfd ready = {.fd = connection->fd, .events = POLLRDHUP};

	if (atomic_load(&connection->state) != CONNECTION_OPEN)
		return true;
	if (poll(&ready, 1, 0) != 1)
		return false;
	lose(connection, "the agent is gone, or has hung up on this program");
	return true;
}

static int send_request(struct connection *connection, const struct writer *writer, int send_fd)
{
	struct iovec part = {.iov_base = writer->text, .iov_len = writer->used};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union {
		char room[CMSG_SPACE(sizeof(int))];
		struct cmsghdr aligned;
	} control;
	ssize_t sent;

	if (send_fd >= 0) {
		struct cmsghdr *header;

		memset(&control, 0, sizeof(control));
		message.msg_control = control.room;
		message.msg_controllen = sizeof(control.room);
		header = CMSG_FIRSTHDR(&message);
		header->cmsg_level = SOL_SOCKET;
		header->cmsg_type = SCM_RIGHTS;
		header->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(header), &send_fd, sizeof(int));
	}
	do {
		sent = sendmsg(connection->fd, &message, MSG_NOSIGNAL);
	} while (sent < 0 && errno == EINTR);
	if (sent >= 0)
		return 0;
	/* A request that is too large for a message was not sent, and costs nothing. */
	if (errno == EMSGSIZE)
		return EMSGSIZE;
	return lose(connection, "the agent is gone, or has hung up on this program");
}

static int receive_answer(struct connection *connection, struct answer *answer, size_t *length)
{
	struct iovec part = {.iov_base = answer->text, .iov_len = ANSWER_BYTES};
	union {
		char room[CMSG_SPACE(CONNECTION_FILES * sizeof(int))];
		struct cmsghdr aligned;
	} control;
	struct msghdr message = {
		.msg_iov = &part, .msg_iovlen = 1, .msg_control = control.room, .msg_controllen = sizeof(control.room)};
	ssize_t received;

	do {
		received = recvmsg(connection->fd, &message, MSG_CMSG_CLOEXEC);
	} while (received < 0 && errno == EINTR);
	if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
		/* A late answer would be taken for the answer to the next request. */
		shutdown(connection->fd, SHUT_RDWR);
		return lose(connection, "the agent does not answer in 30 s");
	}
	if (received <= 0)
		return lose(connection, "the agent is gone, or has hung up on this program");
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		answer->count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(answer->files, CMSG_DATA(header), (size_t)answer->count * sizeof(int));
	}
	*length = (size_t)received;
	return 0;
}

static int read_answer(struct connection *connection, struct answer *answer, size_t length)
{
	const struct json *good;
	int number;

	answer->root = json_read(answer->text, length);
	if (!answer->root)
		return errno;
	good = json_get(answer->root, "ok");
	if (!good || good->type != JSON_BOOL) {
		say("device %s: an answer without 'ok'; the agent must be of the same mrclab", connection->path);
		return EPROTO;
	}
	if (good->number)
		return 0;
	number = (int)json_number(answer->root, "errno", EIO);
	say("%s (%s)", json_text(answer->root, "error", "refused"), strerror(number));
	return number ? number : EIO;
}

int connection_ask(struct connection *connection, struct writer *writer, int send_fd, struct answer *answer)
{
	struct answer own = {.root = NULL};
	struct answer *to = answer ? answer : &own;
	size_t length = 0;
	int failed;

	memset(to, 0, sizeof(*to));
	if (!write_end(writer) || !(to->text = malloc(ANSWER_BYTES))) {
		write_free(writer);
		return ENOMEM;
	}
	if (atomic_load(&connection->state) != CONNECTION_OPEN) {
		failed = ENODEV;
	} else {
		pthread_mutex_lock(&connection->lock);
		failed = send_request(connection, writer, send_fd);
		if (!failed)
			failed = receive_answer(connection, to, &length);
		pthread_mutex_unlock(&connection->lock);
	}
	write_free(writer);
	if (!failed)
		failed = read_answer(connection, to, length);
	if (failed || !answer) {
		for (int i = 0; i < to->count; i++)
			close(to->files[i]);
		to->count = 0;
	}
	if (failed || !answer)
		answer_free(to);
	return failed;
}

void answer_free(struct answer *answer)
{
	json_free(answer->root);
	free(answer->text);
	answer->root = NULL;
	answer->text = NULL;
}
