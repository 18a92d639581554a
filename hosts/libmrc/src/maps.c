#include "maps.h"

#include <string.h>

FILE *maps_open(void)
{
	return fopen("/proc/self/maps", "re");
}

bool maps_next(FILE *maps, struct mapping *mapping)
{
	char line[512];

	while (fgets(line, sizeof(line), maps)) {
		unsigned long long start, end, offset, inode;
		char rights[5];
		int name = 0;
		char *newline = strchr(line, '\n');

		/* A file's name may be longer than the line; its rest begins with no address. */
		while (!newline) {
			char rest[512];

			if (!fgets(rest, sizeof(rest), maps))
				break;
			newline = strchr(rest, '\n');
		}
		if (sscanf(line, "%llx-%llx %4s %llx %x:%x %llu %n", &start, &end, rights, &offset, &mapping->major,
			   &mapping->minor, &inode, &name) != 7)
			continue;
		*mapping = (struct mapping){
			.start = start,
			.end = end,
			.offset = offset,
			.inode = inode,
			.major = mapping->major,
			.minor = mapping->minor,
			.readable = rights[0] == 'r',
			.writable = rights[1] == 'w',
			.executable = rights[2] == 'x',
			.shared = rights[3] == 's',
		};
		mapping->anonymous = !inode && !mapping->shared && name > 0 &&
				     (!line[name] || !strncmp(line + name, "[heap]", 6) || !strncmp(line + name, "[anon:", 6));
		return true;
	}
	return false;
}
