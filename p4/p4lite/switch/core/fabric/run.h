/* The two clocks: run.c. */
#ifndef P4LITE_RUN_H
#define P4LITE_RUN_H

#include "device.h"

void settle(struct fabric *f); /* after a change from outside: bring the clock up to date, do what is left */

#endif
