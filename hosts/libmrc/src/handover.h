/* How functions of libibverbs are handed over to it, for those that interpose them. */
#ifndef LIBMRC_HANDOVER_H
#define LIBMRC_HANDOVER_H

#include "internal.h"

#include <dlfcn.h>
#include <stdlib.h>

static inline bool lab_wanted(void)
{
	const char *device = getenv("MRC_DEVICE");

	return device && *device;
}

/* Return the next library's function of a name; NULL, and errno ENOSYS, where there is none. */
static inline void *next_function(const char *name)
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

static inline void *fail_null(int number)
{
	errno = number;
	return NULL;
}

#endif
