/* What answers programs that look functions and files of devices up by themselves. */
#include "handover.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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
