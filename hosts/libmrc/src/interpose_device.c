/* The functions of libibverbs on devices, their ports and what sysfs says of them; see interpose.c. */
#include "handover.h"

#include <stdio.h>

EXPORT struct ibv_device **ibv_get_device_list(int *count)
{
	if (lab_wanted())
		return lab_device_list(count);
	HAND_OVER(NULL, ibv_get_device_list, count);
}

EXPORT void ibv_free_device_list(struct ibv_device **list)
{
	void (*next)(struct ibv_device **);

	if (lab_wanted() || (list && is_lab_device(list[0]))) {
		lab_free_device_list(list);
		return;
	}
	next = (void (*)(struct ibv_device **))(uintptr_t)next_function("ibv_free_device_list");
	if (next)
		next(list);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device)
{
	return device->name;
}

EXPORT int ibv_get_device_index(struct ibv_device *device)
{
	if (is_lab_device(device))
		return 1;
	HAND_OVER(-1, ibv_get_device_index, device);
}

EXPORT __be64 ibv_get_device_guid(struct ibv_device *device)
{
	if (is_lab_device(device))
		return CONTAINER(device, struct lab_device, base)->guid;
	HAND_OVER(0, ibv_get_device_guid, device);
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device)
{
	if (is_lab_device(device))
		return lab_open_device(device);
	HAND_OVER(NULL, ibv_open_device, device);
}

EXPORT int ibv_close_device(struct ibv_context *context)
{
	if (is_lab(context))
		return lab_close_device(context);
	HAND_OVER(-1, ibv_close_device, context);
}

EXPORT struct ibv_context *ibv_import_device(int cmd_fd)
{
	if (lab_wanted())
		return fail_null(EOPNOTSUPP);
	HAND_OVER(NULL, ibv_import_device, cmd_fd);
}

EXPORT int ibv_query_device(struct ibv_context *context, struct ibv_device_attr *attr)
{
	if (is_lab(context))
		return lab_query_device(context, attr);
	HAND_OVER(ENOSYS, ibv_query_device, context, attr);
}

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
	if (failed) {
		errno = failed;
		return -1;
	}
	*gid = entry.gid;
	return 0;
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
	if (index >= GIDS) {
		errno = EINVAL;
		return -1;
	}
	*type = 1; /* RoCEv2 */
	return 0;
}

EXPORT int ibv_query_pkey(struct ibv_context *context, uint8_t port, int index, __be16 *pkey)
{
	if (!is_lab(context))
		HAND_OVER(-1, ibv_query_pkey, context, port, index, pkey);
	if (index) {
		errno = EINVAL;
		return -1;
	}
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
	errno = EOPNOTSUPP;
	return -1;
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
	lab_free_device_list(list);
	return found;
}

EXPORT int ibv_read_sysfs_file(const char *folder, const char *file, char *to, size_t size)
{
	if (!is_lab_folder(folder))
		HAND_OVER(-1, ibv_read_sysfs_file, folder, file, to, size);
	for (size_t i = 0; i < sizeof(sysfs_files) / sizeof(*sysfs_files); i++)
		if (!strcmp(sysfs_files[i][0], file))
			return snprintf(to, size, "%s", sysfs_files[i][1]);
	errno = ENOENT;
	return -1;
}
