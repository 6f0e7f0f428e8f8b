/* What the attack programs share. Each attack tells on standard output what it got. */
#ifndef ATTACK_H
#define ATTACK_H
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Numbers that old headers lack; the same on every architecture. */
#define NR_PIDFD_SEND_SIGNAL 424
#define NR_IO_URING_SETUP 425
#define NR_OPEN_TREE 428
#define NR_MOVE_MOUNT 429
#define NR_FSOPEN 430
#define NR_FSPICK 433
#define NR_PIDFD_OPEN 434
#define NR_CLONE3 435
#define NR_PIDFD_GETFD 438
#define NR_PROCESS_MADVISE 440
#define NR_MOUNT_SETATTR 442
#define NR_FCHMODAT2 452
#define NR_SETXATTRAT 463

#define RENAME_EXCHANGE_FLAG 2

/* Say whether a call that must fail has worked. */
#define TRY(name, call) attempt((name), (errno = 0, (long)(call)))

typedef int attack(int argc, char **argv);

struct command {
    const char *name;
    attack *run;
};

extern const struct command FILES[], NETWORK[], PROCESSES[], KERNEL[], RESOURCES[];

void attempt(const char *name, long result);
/* The same for calls whose arguments are bad on purpose: any other errno means that they were looked at. */
void reached(const char *name, long result);
void show(const char *what, int fd);
void nap(int milliseconds);
int exists(const char *path);
#endif
