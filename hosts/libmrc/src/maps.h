/* The mappings of this process, as /proc/self/maps lists them. */
#ifndef LIBMRC_MAPS_H
#define LIBMRC_MAPS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A mapping; `device` and `inode` are 0 where no file is behind it. `anonymous`: private memory of no file, and not the
 * first thread's stack. */
struct mapping {
	uint64_t start;
	uint64_t end;
	uint64_t offset;
	uint64_t inode;
	unsigned int major;
	unsigned int minor;
	bool readable;
	bool writable;
	bool executable;
	bool shared;
	bool anonymous;
};

/* Open the list, whose entries come in the order of addresses; NULL: there is no /proc. `fclose` ends it. */
FILE *maps_open(void);
bool maps_next(FILE *maps, struct mapping *mapping);

#endif
