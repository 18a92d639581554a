/* The texts of libibverbs. */
#include "internal.h"

#include <dlfcn.h>

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
