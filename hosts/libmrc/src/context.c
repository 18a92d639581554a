/* Devices and contexts: a host's agent, opened by a program; what becomes of contexts when the program forks. */
#include "internal.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static struct lab_context *open_contexts;
static struct lab_device *devices; /* of which at most one is in use; never given back */
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* -- forks -------------------------------------------------------------------------------------------------------- */

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
	exchange_before_fork();
}

static void after_fork_in_parent(void)
{
	exchange_after_fork(false);
	pthread_mutex_unlock(&list_lock);
}

/* Let go of all that the child has of its parent's: a copy of the socket would hide the parent's end from the agent.
 * Memory stays mapped, and locks stay as they are, since every function looks at the state first. */
static void after_fork_in_child(void)
{
	exchange_after_fork(true);
	for (struct lab_context *each = open_contexts; each; each = each->next) {
		atomic_store(&each->connection.state, CONNECTION_FORKED);
		close(each->connection.fd);
		close(each->doorbell);
		close(each->event_bell);
		close(each->verbs.context.async_fd);
		for (struct lab_channel *channel = each->channels; channel; channel = channel->next) {
			close(channel->bell);
			close(channel->base.fd);
		}
	}
	open_contexts = NULL;
	pthread_mutex_init(&list_lock, NULL);
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
}

/* -- devices ------------------------------------------------------------------------------------------------------ */

/* A number for the device: of its socket's path, which is another one for each host of a lab. */
static uint64_t guid_of(const char *path)
{
	uint64_t hash = 0xcbf29ce484222325;

	for (; *path; path++)
		hash = (hash ^ (unsigned char)*path) * 0x100000001b3;
	return hash | (uint64_t)2 << 56; /* locally administered */
}

static struct lab_device *find_device(const char *path)
{
	struct lab_device *device;
	const char *name = getenv("MRCLAB_DEVICE_NAME");

	if (!name || !*name)
		name = "mrc0";
	for (device = devices; device; device = device->next)
		if (!strcmp(device->path, path) && !strncmp(device->base.name, name, sizeof(device->base.name) - 1))
			return device;
	device = strlen(path) < sizeof(device->path) ? calloc(1, sizeof(*device)) : NULL;
	if (!device)
		return NULL;
	device->base.node_type = IBV_NODE_CA;
	device->base.transport_type = IBV_TRANSPORT_IB;
	snprintf(device->base.name, sizeof(device->base.name), "%s", name);
	snprintf(device->base.dev_name, sizeof(device->base.dev_name), "uverbs-%.50s", name);
	/* There are no such folders; a program that looks there finds nothing, and what it reads by ibv_read_sysfs_file
	 * comes from interpose.c. */
	snprintf(device->base.dev_path, sizeof(device->base.dev_path), "/sys/class/infiniband_verbs/uverbs-%.50s", name);
	snprintf(device->base.ibdev_path, sizeof(device->base.ibdev_path), "/sys/class/infiniband/%s", name);
	strcpy(device->path, path);
	device->guid = htobe64(guid_of(path));
	device->next = devices;
	devices = device;
	return device;
}

bool is_lab_device(const struct ibv_device *device)
{
	const struct lab_device *each;

	pthread_mutex_lock(&list_lock);
	for (each = devices; each && &each->base != device;)
		each = each->next;
	pthread_mutex_unlock(&list_lock);
	return each != NULL;
}

struct ibv_device **lab_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof(*list));
	const char *path = getenv("MRC_DEVICE");
	struct lab_device *device;

	if (count)
		*count = 0;
	if (!list || !path)
		return list;
	pthread_mutex_lock(&list_lock);
	device = find_device(path);
	pthread_mutex_unlock(&list_lock);
	if (!device) {
		say("MRC_DEVICE: the path of a socket has fewer than %d bytes", CONNECTION_PATH);
		return list;
	}
	list[0] = &device->base;
	if (count)
		*count = 1;
	return list;
}

static int greet(struct lab_context *context)
{
	struct answer answer;
	int memory = open("/proc/self/mem", O_RDWR | O_CLOEXEC);
	int failed;

	/* Without it the device works, but for ibv_reg_mr, which then says so. */
	failed = connection_ask(&context->connection,
				REQUEST("hello", "sIsI", "version", INT(LAYOUT_VERSION), "pid", INT(getpid())), memory,
				&answer);
	if (memory >= 0)
		close(memory);
	if (failed)
		return failed;
	if (answer.count != 4 || number_in(answer.root, "version", 0) != LAYOUT_VERSION ||
	    inet_pton(AF_INET6, text_in(answer.root, "address", ""), &context->address) != 1) {
		say("device %s: the agent speaks another version; both must be of one mrclab", context->connection.path);
		failed = EPROTO;
	} else {
		snprintf(context->host, sizeof(context->host), "%s", text_in(answer.root, "host", ""));
		context->mrc = !strcmp(text_in(answer.root, "transport", ""), "mrc");
		failed = lab_map(&context->submissions, answer.files[0], number_in(answer.root, "submissions", 0),
				 sizeof(struct ring_request));
		if (!failed)
			failed = lab_map(&context->events, answer.files[1], number_in(answer.root, "events", 0),
					 sizeof(struct ring_event));
	}
	for (int i = 0; i < answer.count; i++) {
		if (i == 2 && !failed)
			context->doorbell = answer.files[i];
		else if (i == 3 && !failed)
			context->event_bell = answer.files[i];
		else
			close(answer.files[i]);
	}
	answer_free(&answer);
	return failed;
}

static void discard(struct lab_context *context)
{
	lab_unmap(&context->submissions);
	lab_unmap(&context->events);
	if (context->verbs.context.async_fd >= 0)
		close(context->verbs.context.async_fd);
	if (context->doorbell >= 0)
		close(context->doorbell);
	if (context->event_bell >= 0)
		close(context->event_bell);
	connection_close(&context->connection);
	pthread_mutex_destroy(&context->post_lock);
	pthread_mutex_destroy(&context->event_lock);
	pthread_mutex_destroy(&context->table_lock);
	pthread_mutex_destroy(&context->verbs.context.mutex);
	free(context);
}

/* -- thread domains and parent domains ---------------------------------------------------------------------------- */

static struct ibv_td *alloc_td(struct ibv_context *context, struct ibv_td_init_attr *attr)
{
	struct ibv_td *td;

	if (attr->comp_mask)
		return give_up(NULL, refused(EINVAL, "alloc_td: comp_mask %#x: there is nothing to choose", attr->comp_mask));
	td = calloc(1, sizeof(*td));
	if (td)
		td->context = context;
	return td;
}

static int dealloc_td(struct ibv_td *td)
{
	free(td);
	return 0;
}

/* A protection domain that locks as any other does: a thread domain promises the library something, and nothing to the
 * program. Allocators are not used. */
static struct ibv_pd *alloc_parent_domain(struct ibv_context *context, struct ibv_parent_domain_init_attr *attr)
{
	struct lab_pd *pd;

	if (!attr->pd || attr->pd->context != context)
		return give_up(NULL, refused(EINVAL, "alloc_parent_domain: a protection domain of this device is needed"));
	pd = calloc(1, sizeof(*pd));
	if (!pd)
		return NULL;
	pd->base = *attr->pd;
	pd->parent = true;
	return &pd->base;
}

/* -- opening and closing ------------------------------------------------------------------------------------------- */

static struct ibv_mw *refuse_mw(struct ibv_pd *pd, enum ibv_mw_type type)
{
	(void)pd;
	return give_up(NULL, refused(EOPNOTSUPP, "alloc_mw: there are no memory windows (type %d)", (int)type));
}

struct ibv_context_ops lab_ops = {
	.alloc_mw = refuse_mw,
	.poll_cq = lab_poll_cq,
	.req_notify_cq = lab_req_notify_cq,
	.post_srq_recv = lab_post_srq_recv,
	.post_send = lab_post_send,
	.post_recv = lab_post_recv,
};

struct ibv_context *lab_open_device(struct ibv_device *base)
{
	struct lab_device *device = CONTAINER(base, struct lab_device, base);
	struct lab_context *context = calloc(1, sizeof(*context));
	int failed;

	if (!context)
		return NULL;
	pthread_once(&fork_once, watch_forks);
	failed = connection_open(&context->connection, device->path);
	if (failed)
		return give_up(context, failed);
	context->device = device;
	context->doorbell = context->event_bell = -1;
	pthread_mutex_init(&context->post_lock, NULL);
	pthread_mutex_init(&context->event_lock, NULL);
	pthread_mutex_init(&context->table_lock, NULL);
	context->verbs.context.device = base;
	context->verbs.context.ops = lab_ops;
	/* Programs copy it, to share a device with another process, before they learn that this device is not shared. */
	context->verbs.context.cmd_fd = context->connection.fd;
	context->verbs.context.async_fd = -1;
	context->verbs.context.num_comp_vectors = 1;
	pthread_mutex_init(&context->verbs.context.mutex, NULL);
	context->verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
	context->verbs.sz = sizeof(context->verbs);
	context->verbs.query_port = lab_query_port;
	context->verbs.query_device_ex = lab_query_device_ex;
	context->verbs.create_cq_ex = lab_create_cq_ex;
	context->verbs.create_qp_ex = lab_create_qp_ex;
	context->verbs.create_srq_ex = lab_create_srq_ex;
	context->verbs.alloc_td = alloc_td;
	context->verbs.dealloc_td = dealloc_td;
	context->verbs.alloc_parent_domain = alloc_parent_domain;
	failed = greet(context);
	if (!failed) {
		context->verbs.context.async_fd = lab_watch(context->event_bell, context);
		if (context->verbs.context.async_fd < 0)
			failed = errno;
	}
	if (failed) {
		discard(context);
		return give_up(NULL, failed);
	}
	context->port_up = lab_any_port_up(context);
	pthread_mutex_lock(&list_lock);
	context->next = open_contexts;
	open_contexts = context;
	pthread_mutex_unlock(&list_lock);
	return &context->verbs.context;
}

int lab_close_device(struct ibv_context *base)
{
	struct lab_context *context = lab_of(base);
	struct lab_context **at = &open_contexts;

	if (is_forked(context))
		return fail(ENODEV);
	pthread_mutex_lock(&list_lock);
	while (*at && *at != context)
		at = &(*at)->next;
	if (*at)
		*at = context->next;
	pthread_mutex_unlock(&list_lock);
	/* With the connection the agent destroys what the program has left. */
	discard(context);
	exchange_leave_all(context);
	return 0;
}
