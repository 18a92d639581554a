/*
 * The functions of libibverbs, for unmodified programs.
 *
 * They have no symbol versions: the dynamic linker then binds references of any version to them, as long as this library
 * comes before libibverbs (LD_PRELOAD, or the order on the linker's command line). libibverbs stays loaded beside it
 * for what libmlx5, libefa and librdmacm need of its inner functions. Without MRC_DEVICE, and for objects of other
 * devices, each call is handed over to it.
 */
#include "internal.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool lab_wanted(void)
{
	const char *device = getenv("MRC_DEVICE");

	return device && *device;
}

/* Return the next library's function of a name; NULL, and errno ENOSYS, where there is none. */
static void *next_function(const char *name)
{
	void *found = dlsym(RTLD_NEXT, name);

	if (!found)
		errno = ENOSYS;
	return found;
}

/* Hand a call over to libibverbs; `otherwise` is the result where it is not loaded. */
#define HAND_OVER(otherwise, name, ...)                                                                               \
	do {                                                                                                          \
		__typeof__(&name) next_ = (__typeof__(&name))(uintptr_t)next_function(#name);                          \
		return next_ ? next_(__VA_ARGS__) : (otherwise);                                                       \
	} while (0)

/* The same for a function without a result. */
#define LEAVE(name, ...)                                                                                              \
	do {                                                                                                          \
		__typeof__(&name) next_ = (__typeof__(&name))(uintptr_t)next_function(#name);                          \
		if (next_)                                                                                            \
			next_(__VA_ARGS__);                                                                           \
	} while (0)

/* A function of libibverbs: its result is `result` where it concerns our device, and else that of libibverbs. */
#define INTERPOSE(type, name, parameters, arguments, ours, result, otherwise)                                         \
	EXPORT type name parameters                                                                                   \
	{                                                                                                             \
		__typeof__(&name) next_;                                                                              \
		if (ours)                                                                                             \
			return result;                                                                                \
		next_ = (__typeof__(&name))(uintptr_t)next_function(#name);                                            \
		return next_ ? next_ arguments : (otherwise);                                                         \
	}

/* -- memory ------------------------------------------------------------------------------------------------------- */

INTERPOSE(struct ibv_pd *, ibv_alloc_pd, (struct ibv_context *context), (context), is_lab(context),
	  lab_alloc_pd(context), NULL)
INTERPOSE(int, ibv_dealloc_pd, (struct ibv_pd *pd), (pd), is_lab(pd->context), lab_dealloc_pd(pd), ENOSYS)
INTERPOSE(struct ibv_mr *, ibv_reg_mr, (struct ibv_pd *pd, void *memory, size_t length, int access),
	  (pd, memory, length, access), is_lab(pd->context),
	  lab_reg_mr(pd, memory, length, (uintptr_t)memory, (unsigned int)access), NULL)
INTERPOSE(struct ibv_mr *, ibv_reg_mr_iova, (struct ibv_pd *pd, void *memory, size_t length, uint64_t iova,
	  int access),
	  (pd, memory, length, iova, access), is_lab(pd->context),
	  lab_reg_mr(pd, memory, length, iova, (unsigned int)access), NULL)
INTERPOSE(struct ibv_mr *, ibv_reg_mr_iova2, (struct ibv_pd *pd, void *memory, size_t length, uint64_t iova,
	  unsigned int access),
	  (pd, memory, length, iova, access), is_lab(pd->context), lab_reg_mr(pd, memory, length, iova, access), NULL)
INTERPOSE(struct ibv_mr *, ibv_reg_dmabuf_mr, (struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova,
	  int fd, int access),
	  (pd, offset, length, iova, fd, access), is_lab(pd->context),
	  give_up(NULL, refused(EOPNOTSUPP, "reg_dmabuf_mr: there is no device memory")), NULL)
INTERPOSE(int, ibv_rereg_mr, (struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *memory, size_t length,
	  int access),
	  (mr, flags, pd, memory, length, access), is_lab(mr->context),
	  lab_rereg_mr(mr, flags, pd, memory, length, access), IBV_REREG_MR_ERR_INPUT)
INTERPOSE(int, ibv_dereg_mr, (struct ibv_mr *mr), (mr), is_lab(mr->context), lab_dereg_mr(mr), ENOSYS)

/* -- completions -------------------------------------------------------------------------------------------------- */

INTERPOSE(struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context *context), (context),
	  is_lab(context),
	  lab_create_channel(context), NULL)
INTERPOSE(int, ibv_destroy_comp_channel, (struct ibv_comp_channel *channel), (channel), is_lab(channel->context),
	  lab_destroy_channel(channel), ENOSYS)
INTERPOSE(struct ibv_cq *, ibv_create_cq, (struct ibv_context *context, int cqe, void *user,
	  struct ibv_comp_channel *channel, int vector),
	  (context, cqe, user, channel, vector), is_lab(context),
	  lab_create_cq(context, cqe, user, channel, vector), NULL)

EXPORT int ibv_resize_cq(struct ibv_cq *cq, int cqe)
{
	if (!is_lab(cq->context))
		HAND_OVER(ENOSYS, ibv_resize_cq, cq, cqe);
	return cqe <= cq->cqe ? 0 : refused(EOPNOTSUPP, "resize_cq: a completion queue cannot grow (it has %d)", cq->cqe);
}

INTERPOSE(int, ibv_destroy_cq, (struct ibv_cq *cq), (cq), is_lab(cq->context), lab_destroy_cq(cq), ENOSYS)
INTERPOSE(int, ibv_get_cq_event, (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **user),
	  (channel, cq, user), is_lab(channel->context), lab_get_cq_event(channel, cq, user), -1)

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count)
{
	if (is_lab(cq->context))
		lab_ack_cq_events(cq, count);
	else
		LEAVE(ibv_ack_cq_events, cq, count);
}

EXPORT int ibv_get_async_event(struct ibv_context *context, struct ibv_async_event *event)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_get_async_event, context, event);
	return fail(lab_get_async_event(lab_of(context), event, false));
}

/* Return whether an event is of one of our objects; those without an object need no acknowledgement from anybody. */
static bool is_lab_event(const struct ibv_async_event *event)
{
	switch (lab_event_object(event->event_type)) {
	case EVENT_OF_CQ:
		return is_lab(event->element.cq->context);
	case EVENT_OF_QP:
		return is_lab(event->element.qp->context);
	case EVENT_OF_SRQ:
		return is_lab(event->element.srq->context);
	case EVENT_OF_PORT:
		break;
	}
	return lab_wanted();
}

EXPORT void ibv_ack_async_event(struct ibv_async_event *event)
{
	if (is_lab_event(event))
		lab_ack_async_event(event);
	else
		LEAVE(ibv_ack_async_event, event);
}

/* -- queue pairs -------------------------------------------------------------------------------------------------- */

INTERPOSE(struct ibv_qp *, ibv_create_qp, (struct ibv_pd *pd, struct ibv_qp_init_attr *attr), (pd, attr),
	  is_lab(pd->context), lab_create_qp(pd, attr, false), NULL)

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp)
{
	struct lab_qp *own;

	if (!is_lab(qp->context))
		HAND_OVER(NULL, ibv_qp_to_qp_ex, qp);
	own = CONTAINER(qp, struct lab_qp, base);
	return own->extended ? &own->ex : NULL;
}

INTERPOSE(int, ibv_modify_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask), (qp, attr, mask),
	  is_lab(qp->context), lab_modify_qp(qp, attr, mask, NULL, 0), ENOSYS)
INTERPOSE(int, ibv_query_qp, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
	  (qp, attr, mask, init), is_lab(qp->context), lab_query_qp(qp, attr, init, NULL), ENOSYS)

/* Packets of a message may come in any order, by several planes. */
INTERPOSE(int, ibv_query_qp_data_in_order, (struct ibv_qp *qp, enum ibv_wr_opcode op, uint32_t flags), (qp, op,
	  flags),
	  is_lab(qp->context), 0, 0)
INTERPOSE(int, ibv_destroy_qp, (struct ibv_qp *qp), (qp), is_lab(qp->context), lab_destroy_qp(qp), ENOSYS)
INTERPOSE(struct ibv_srq *, ibv_create_srq, (struct ibv_pd *pd, struct ibv_srq_init_attr *attr), (pd, attr),
	  is_lab(pd->context), lab_create_srq(pd, attr), NULL)
INTERPOSE(int, ibv_modify_srq, (struct ibv_srq *srq, struct ibv_srq_attr *attr, int mask), (srq, attr, mask),
	  is_lab(srq->context), lab_modify_srq(srq, attr, mask), ENOSYS)
INTERPOSE(int, ibv_query_srq, (struct ibv_srq *srq, struct ibv_srq_attr *attr), (srq, attr), is_lab(srq->context),
	  lab_query_srq(srq, attr), ENOSYS)
INTERPOSE(int, ibv_destroy_srq, (struct ibv_srq *srq), (srq), is_lab(srq->context), lab_destroy_srq(srq), ENOSYS)
INTERPOSE(int, ibv_set_ece, (struct ibv_qp *qp, struct ibv_ece *ece), (qp, ece), is_lab(qp->context),
	  refused(EOPNOTSUPP, "set_ece: there are no options of vendors"), ENOSYS)
INTERPOSE(int, ibv_query_ece, (struct ibv_qp *qp, struct ibv_ece *ece), (qp, ece), is_lab(qp->context),
	  refused(EOPNOTSUPP, "query_ece: there are no options of vendors"), ENOSYS)

/* -- what only unreliable datagrams need -------------------------------------------------------------------------- */

static int refused_ud(const char *name)
{
	return refused(EOPNOTSUPP, "%s: only queue pairs of type UD need it, which this device does not have", name);
}

INTERPOSE(struct ibv_ah *, ibv_create_ah, (struct ibv_pd *pd, struct ibv_ah_attr *attr), (pd, attr),
	  is_lab(pd->context), give_up(NULL, refused_ud("create_ah")), NULL)

EXPORT int ibv_init_ah_from_wc(struct ibv_context *context, uint8_t port, struct ibv_wc *wc, struct ibv_grh *grh,
			       struct ibv_ah_attr *attr)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_init_ah_from_wc, context, port, wc, grh, attr);
	return fail(refused_ud("init_ah_from_wc"));
}

INTERPOSE(struct ibv_ah *, ibv_create_ah_from_wc, (struct ibv_pd *pd, struct ibv_wc *wc, struct ibv_grh *grh,
	  uint8_t port),
	  (pd, wc, grh, port), is_lab(pd->context), give_up(NULL, refused_ud("create_ah_from_wc")), NULL)
INTERPOSE(int, ibv_destroy_ah, (struct ibv_ah *ah), (ah), is_lab(ah->context), EINVAL, ENOSYS)
INTERPOSE(int, ibv_attach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid),
	  is_lab(qp->context), refused_ud("attach_mcast"), ENOSYS)
INTERPOSE(int, ibv_detach_mcast, (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid),
	  is_lab(qp->context), refused_ud("detach_mcast"), ENOSYS)

/* -- forks -------------------------------------------------------------------------------------------------------- */

/* Pages are not pinned, so that a fork cannot part the program from what the device writes to. */
INTERPOSE(int, ibv_fork_init, (void), (), lab_wanted(), 0, ENOSYS)
INTERPOSE(enum ibv_fork_status, ibv_is_fork_initialized, (void), (), lab_wanted(), IBV_FORK_UNNEEDED,
	  IBV_FORK_DISABLED)

/* -- devices, their ports and what sysfs says of them ------------------------------------------------------------- */

INTERPOSE(struct ibv_device **, ibv_get_device_list, (int *count), (count), lab_wanted(), lab_device_list(count),
	  NULL)

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	/* Devices stay: there is one, and contexts refer to it. */
	if (lab_wanted() || (list && is_lab_device(list[0])))
		free(list);
	else
		LEAVE(ibv_free_device_list, list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

INTERPOSE(int, ibv_get_device_index, (struct ibv_device *device), (device), is_lab_device(device), 1, -1)
INTERPOSE(__be64, ibv_get_device_guid, (struct ibv_device *device), (device), is_lab_device(device),
	  CONTAINER(device, struct lab_device, base)->guid, 0)
INTERPOSE(struct ibv_context *, ibv_open_device, (struct ibv_device *device), (device), is_lab_device(device),
	  lab_open_device(device), NULL)
INTERPOSE(int, ibv_close_device, (struct ibv_context *context), (context), is_lab(context),
	  lab_close_device(context), -1)
INTERPOSE(struct ibv_context *, ibv_import_device, (int cmd_fd), (cmd_fd), lab_wanted(),
	  give_up(NULL, refused(EOPNOTSUPP, "import_device: a device is not shared between processes")), NULL)
INTERPOSE(int, ibv_query_device, (struct ibv_context *context, struct ibv_device_attr *attr), (context, attr),
	  is_lab(context), lab_query_device(context, attr), ENOSYS)

EXPORT int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attr)
{
	/* The structure of old programs ends before the last member of today's. */
	if (is_lab(context))
		return lab_query_port(context, port, (struct ibv_port_attr *)attr,
				      offsetof(struct ibv_port_attr, flags) + 1);
	HAND_OVER(ENOSYS, ibv_query_port, context, port, attr);
}

EXPORT int ibv_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid)
{
	struct ibv_gid_entry entry;
	int failed;

	if (!is_lab(context))
		HAND_OVER(-1, ibv_query_gid, context, port, index, gid);
	failed = index < 0 ? EINVAL : lab_query_gid(context, port, (uint32_t)index, &entry);
	if (!failed)
		*gid = entry.gid;
	return fail(failed);
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index, struct ibv_gid_entry *entry,
			     uint32_t flags, size_t size)
{
	struct ibv_gid_entry found;
	int failed;

	if (!is_lab(context))
		HAND_OVER(ENOSYS, _ibv_query_gid_ex, context, port, index, entry, flags, size);
	if (flags || size < sizeof(found))
		return EINVAL;
	failed = lab_query_gid(context, port, index, &found);
	if (!failed) {
		memset(entry, 0, size);
		memcpy(entry, &found, sizeof(found));
	}
	return failed;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t most,
				    uint32_t flags, size_t size)
{
	if (!is_lab(context))
		HAND_OVER(-ENOSYS, _ibv_query_gid_table, context, entries, most, flags, size);
	if (flags || size < sizeof(*entries) || most < GIDS)
		return -EINVAL;
	for (uint32_t i = 0; i < GIDS; i++) {
		int failed = _ibv_query_gid_ex(context, 1, i, (void *)((char *)entries + i * size), 0, size);

		if (failed)
			return -failed;
	}
	return GIDS;
}

/* An inner function of libibverbs that ibv_devinfo, perftest and UCX use: the type as sysfs numbers it. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type);
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index, unsigned int *type)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_query_gid_type, context, port, index, type);
	if (index >= GIDS)
		return fail(EINVAL);
	*type = 1; /* RoCEv2 */
	return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_query_pkey, context, port, index, pkey);
	if (index)
		return fail(EINVAL);
	*pkey = 0xffff;
	return 0;
}

EXPORT int ibv_get_pkey_index(struct ibv_context *context, uint8_t port, __be16 pkey)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_get_pkey_index, context, port, pkey);
	return pkey == 0xffff ? 0 : -1;
}

EXPORT int ibv_resolve_eth_l2_from_gid(struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t mac[6],
				       uint16_t *vlan)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_resolve_eth_l2_from_gid, context, attr, mac, vlan);
	return fail(refused_ud("resolve_eth_l2_from_gid"));
}

/* -- files of sysfs ----------------------------------------------------------------------------------------------- */

static const char *const sysfs_files[][2] = {
	{"board_id", "MRCLAB"},
	{"hca_type", "mrclab"},
	{"node_type", "1: CA"},
	{"fw_ver", "2.0.0"},
	{"node_desc", "mrclab"},
	{"ports/1/link_layer", "Ethernet"},
	{"ports/1/pkeys/0", "0xffff"},
	{"ports/1/gid_attrs/types/0", "RoCE v2"},
	{"ports/1/gid_attrs/types/1", "RoCE v2"},
	{"ports/1/gid_attrs/types/2", "RoCE v2"},
	{"ports/1/gid_attrs/types/3", "RoCE v2"},
};

static bool is_lab_folder(const char *folder)
{
	struct ibv_device **list;
	bool found;

	if (!lab_wanted())
		return false;
	list = lab_device_list(NULL);
	found = list && list[0] && !strcmp(list[0]->ibdev_path, folder);
	free(list);
	return found;
}

EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *to, size_t size)
{
	if (!is_lab_folder(folder))
		HAND_OVER(-1, ibv_read_sysfs_file, folder, file, to, size);
	for (size_t i = 0; i < sizeof(sysfs_files) / sizeof(*sysfs_files); i++)
		if (!strcmp(sysfs_files[i][0], file))
			return snprintf(to, size, "%s", sysfs_files[i][1]);
	return fail(ENOENT);
}

/* -- texts -------------------------------------------------------------------------------------------------------- */

/* Programs that were linked with this library alone find these here; where libibverbs is loaded, its texts are used. */
#define TEXT(function, type, names)                                                                                   \
	EXPORT const char *function(type value)                                                                        \
	{                                                                                                             \
		const char *(*next)(type) = (const char *(*)(type))(uintptr_t)dlsym(RTLD_NEXT, #function);             \
		size_t number = (size_t)value;                                                                        \
                                                                                                                      \
		if (next)                                                                                             \
			return next(value);                                                                           \
		return number < sizeof(names) / sizeof(*names) && names[number] ? names[number] : "unknown";          \
	}

static const char *const statuses[] = {
	[IBV_WC_SUCCESS] = "success",
	[IBV_WC_LOC_LEN_ERR] = "local length error",
	[IBV_WC_LOC_QP_OP_ERR] = "local queue pair operation error",
	[IBV_WC_LOC_PROT_ERR] = "local protection error",
	[IBV_WC_WR_FLUSH_ERR] = "work request flushed",
	[IBV_WC_LOC_ACCESS_ERR] = "local access error",
	[IBV_WC_REM_INV_REQ_ERR] = "remote invalid request",
	[IBV_WC_REM_ACCESS_ERR] = "remote access error",
	[IBV_WC_REM_OP_ERR] = "remote operation error",
	[IBV_WC_RETRY_EXC_ERR] = "transport retry counter exceeded",
	[IBV_WC_RNR_RETRY_EXC_ERR] = "RNR retry counter exceeded",
	[IBV_WC_FATAL_ERR] = "fatal error",
	[IBV_WC_GENERAL_ERR] = "general error",
};
static const char *const node_types[] = {[IBV_NODE_CA] = "channel adapter"};
static const char *const port_states[] = {[IBV_PORT_DOWN] = "down", [IBV_PORT_ACTIVE] = "active"};
static const char *const events[] = {
	[IBV_EVENT_CQ_ERR] = "completion queue error",
	[IBV_EVENT_QP_FATAL] = "queue pair has failed",
	[IBV_EVENT_DEVICE_FATAL] = "device has failed",
	[IBV_EVENT_PORT_ACTIVE] = "port is active",
	[IBV_EVENT_PORT_ERR] = "port is down",
	[IBV_EVENT_SRQ_LIMIT_REACHED] = "shared receive queue has reached its limit",
	[IBV_EVENT_QP_LAST_WQE_REACHED] = "last work request of a shared receive queue is reached",
};
TEXT(ibv_wc_status_str, enum ibv_wc_status, statuses)
TEXT(ibv_node_type_str, enum ibv_node_type, node_types)
TEXT(ibv_port_state_str, enum ibv_port_state, port_states)
TEXT(ibv_event_type_str, enum ibv_event_type, events)

/* -- what answers programs that look functions and files of devices up by themselves ------------------------------ */

/* Return our function of a name; NULL where there is none. */
static void *own_function(const char *name)
{
	Dl_info own;
	void *self = NULL;
	void *found;

	if (dladdr((void *)(uintptr_t)own_function, &own))
		self = dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
	if (!self)
		return NULL;
	found = dlsym(self, name);
	dlclose(self);
	return found;
}

#define UNINSTRUMENTED __attribute__((no_sanitize("address", "undefined", "thread")))

UNINSTRUMENTED static bool begins(const char *text, const char *prefix)
{
	while (*prefix && *text == *prefix)
		text++, prefix++;
	return !*prefix;
}

/*
 * UCX leaves out devices whose file in /dev it may not use. Here such a file would be a connection to the agent, which
 * is opened by ibv_open_device; that there may be one is answered for the file of /dev/null.
 */
UNINSTRUMENTED static const char *device_file(const char *path)
{
	const char *name = getenv("MRCLAB_DEVICE_NAME");
	const char *rest = path + sizeof("/dev/infiniband/uverbs-") - 1;

	if (!begins(path, "/dev/infiniband/uverbs-") || !lab_wanted())
		return path;
	return begins(rest, name && *name ? name : "mrc0") ? "/dev/null" : path;
}

UNINSTRUMENTED EXPORT int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, device_file(path), mode, 0);
}

UNINSTRUMENTED EXPORT int stat(const char *restrict path, struct stat *restrict found)
{
	return fstatat(AT_FDCWD, device_file(path), found, 0);
}

/*
 * NCCL opens libibverbs and asks for functions by dlvsym, which accepts no function without a version. A program that
 * asks for a function of ours by a version of libibverbs gets ours.
 *
 * Runtimes of sanitizers call this before they are ready themselves: it is not instrumented, and calls nothing of theirs
 * on the way to the C library's function.
 */
EXPORT void *dlvsym(void *handle, const char *name, const char *version);
UNINSTRUMENTED EXPORT void *dlvsym(void *handle, const char *name, const char *version)
{
	static void *(*next)(void *, const char *, const char *);

	if (begins(version, "IBVERBS_1.") && lab_wanted() && (begins(name, "ibv_") || begins(name, "_ibv_"))) {
		void *found = own_function(name);

		if (found)
			return found;
	}
	if (!next)
		next = (void *(*)(void *, const char *, const char *))(uintptr_t)dlsym(RTLD_NEXT, "dlvsym");
	/* A call in the last place is a jump: the C library sees who called us, which RTLD_NEXT depends on. */
	return next ? next(handle, name, version) : NULL;
}
