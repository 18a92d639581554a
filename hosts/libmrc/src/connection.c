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
#define DEVICE_SUFFIX ".verbs"
#define CONTROL_SUFFIX ".sock"

static const char gone[] = "the agent is gone, or has hung up on this program";

static void print_line(const char *format, va_list arguments)
{
	const char *wanted = getenv("MRCLAB_MESSAGES");
	char line[512];
	int kept = errno;

	if (wanted && !strcmp(wanted, "0"))
		return;
	vsnprintf(line, sizeof(line), format, arguments);
	fprintf(stderr, "libmrc: %s\n", line);
	errno = kept;
}

void say(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(format, arguments);
	va_end(arguments);
}

int refused(int number, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(format, arguments);
	va_end(arguments);
	return number;
}

/* -- answers ------------------------------------------------------------------------------------------------------ */

uint64_t number_in(const json_t *object, const char *key, uint64_t otherwise)
{
	const json_t *member = json_object_get(object, key);

	if (!json_is_number(member) || json_number_value(member) < 0)
		return otherwise;
	return json_is_integer(member) ? (uint64_t)json_integer_value(member) : (uint64_t)json_real_value(member);
}

bool bool_in(const json_t *object, const char *key, bool otherwise)
{
	const json_t *member = json_object_get(object, key);

	return json_is_boolean(member) ? json_is_true(member) : otherwise;
}

const char *text_in(const json_t *object, const char *key, const char *otherwise)
{
	const json_t *member = json_object_get(object, key);

	return json_is_string(member) ? json_string_value(member) : otherwise;
}

/* Return 0 for an answer that grants what was asked for, or an errno; a line says why. */
static int judge(const char *path, const json_t *root)
{
	int number;

	if (!json_is_boolean(json_object_get(root, "ok"))) {
		say("device %s: an answer without 'ok'; the agent must be of the same mrclab", path);
		return EPROTO;
	}
	if (bool_in(root, "ok", false))
		return 0;
	number = (int)number_in(root, "errno", EIO);
	number = number ? number : EIO;
	say("%s (%s)", text_in(root, "error", "refused"), strerror(number));
	return number;
}

void answer_free(struct answer *answer)
{
	json_decref(answer->root);
	answer->root = NULL;
}

void answer_refuse(struct answer *answer)
{
	for (int i = 0; i < answer->count; i++)
		close(answer->files[i]);
	answer->count = 0;
	answer_free(answer);
}

/* -- the connection of a device ----------------------------------------------------------------------------------- */

/* Connect a socket of 30 s' patience to a path that is not too long; 0, or an errno. */
static int connect_to(const char *path, int type, int *fd)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct timeval timeout = {.tv_sec = TIMEOUT_S};
	int failed;

	strcpy(address.sun_path, path);
	*fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
	if (*fd < 0)
		return errno;
	setsockopt(*fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
	setsockopt(*fd, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
	do {
		failed = connect(*fd, (struct sockaddr *)&address, sizeof(address)) ? errno : 0;
	} while (failed == EINTR);
	if (failed) {
		close(*fd);
		*fd = -1;
	}
	return failed;
}

int connection_open(struct connection *connection, const char *path)
{
	int failed;

	memset(connection, 0, sizeof(*connection));
	connection->fd = -1;
	if (strlen(path) >= CONNECTION_PATH) {
		say("device %s: the path of a socket has fewer than %d bytes", path, CONNECTION_PATH);
		return ENAMETOOLONG;
	}
	strcpy(connection->path, path);
	failed = connect_to(path, SOCK_SEQPACKET, &connection->fd);
	if (failed) {
		say("device %s: no agent answers (%s); is the lab up, and the program in a host of it?", path, strerror(failed));
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
	lose(connection, gone);
	return true;
}

static int send_request(struct connection *connection, char *text, int send_fd)
{
	struct iovec part = {.iov_base = text, .iov_len = strlen(text)};
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
	return lose(connection, gone);
}

static int receive_answer(struct connection *connection, struct answer *answer, char *text, size_t *length)
{
	struct iovec part = {.iov_base = text, .iov_len = ANSWER_BYTES};
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
		return lose(connection, gone);
	for (struct cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		answer->count = (int)((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
		memcpy(answer->files, CMSG_DATA(header), (size_t)answer->count * sizeof(int));
	}
	*length = (size_t)received;
	return 0;
}

int connection_ask(struct connection *connection, json_t *request, int send_fd, struct answer *answer)
{
	struct answer own;
	struct answer *to = answer ? answer : &own;
	char *question = request ? json_dumps(request, JSON_COMPACT) : NULL;
	char *text = malloc(ANSWER_BYTES);
	size_t length = 0;
	int failed = question && text ? 0 : ENOMEM;

	memset(to, 0, sizeof(*to));
	json_decref(request);
	if (!failed && atomic_load(&connection->state) != CONNECTION_OPEN)
		failed = ENODEV;
	if (!failed) {
		pthread_mutex_lock(&connection->lock);
		failed = send_request(connection, question, send_fd);
		if (!failed)
			failed = receive_answer(connection, to, text, &length);
		pthread_mutex_unlock(&connection->lock);
	}
	if (!failed && !(to->root = json_loadb(text, length, 0, NULL)))
		failed = EPROTO;
	free(question);
	free(text);
	if (!failed)
		failed = judge(connection->path, to->root);
	if (failed || !answer)
		answer_refuse(to);
	return failed;
}

/* -- the control socket ------------------------------------------------------------------------------------------- */

/* Connect to the control socket beside a device's socket; 0, or an errno. */
static int open_control(const char *device, int *fd)
{
	char path[CONNECTION_PATH];
	size_t length = strlen(device);
	int failed;

	if (length > strlen(DEVICE_SUFFIX) && !strcmp(device + length - strlen(DEVICE_SUFFIX), DEVICE_SUFFIX))
		length -= strlen(DEVICE_SUFFIX);
	if (snprintf(path, sizeof(path), "%.*s" CONTROL_SUFFIX, (int)length, device) >= (int)sizeof(path))
		return ENAMETOOLONG;
	failed = connect_to(path, SOCK_STREAM, fd);
	if (failed == EACCES || failed == EPERM)
		return EPERM;
	if (failed)
		say("%s: no agent answers (%s)", path, strerror(failed));
	return failed ? ENODEV : 0;
}

int control_may(const char *device)
{
	int fd, failed = open_control(device, &fd);

	if (!failed)
		close(fd);
	return failed;
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

/* Receive for jansson, which takes -1 for a failure; `fd` is -1 then. */
static size_t receive_part(void *buffer, size_t room, void *fd)
{
	ssize_t received;

	do {
		received = recv(*(int *)fd, buffer, room, 0);
	} while (received < 0 && errno == EINTR);
	if (received > 0)
		return (size_t)received;
	say("the agent %s", received < 0 ? "does not answer in 30 s" : "is gone");
	*(int *)fd = -1;
	return (size_t)-1;
}

int control_ask(const char *device, json_t *request, json_t **root)
{
	char *question = request ? json_dumps(request, JSON_COMPACT) : NULL;
	json_t *answer = NULL;
	int fd = -1, reading, failed = question ? open_control(device, &fd) : ENOMEM;

	json_decref(request);
	if (!failed)
		failed = send_all(fd, question, strlen(question));
	if (!failed)
		failed = send_all(fd, "\n", 1);
	free(question);
	reading = fd;
	if (!failed) {
		/* The end of the answer's line is not waited for. */
		answer = json_load_callback(receive_part, &reading, JSON_DISABLE_EOF_CHECK, NULL);
		failed = answer ? judge(device, answer) : reading < 0 ? ENODEV : EPROTO;
	}
	if (fd >= 0)
		close(fd);
	if (failed || !root)
		json_decref(answer);
	else
		*root = answer;
	return failed;
}
