/* Attacks on what everybody shares. All are bounded: where nothing stops them they stop themselves. */
#include "attack.h"
#include <ftw.h>
#include <sys/inotify.h>
#include <sys/syscall.h>

/* fds: how many descriptors can be had. */
static int fds(int argc, char **argv)
{
    long held = 0;
    (void)argc, (void)argv;
    TRY("raise", setrlimit(RLIMIT_NOFILE, &(struct rlimit){1 << 19, 1 << 19}));
    while (held < 5000 && open("/dev/null", O_RDONLY) >= 0)
        held++;
    printf("held %ld\n", held);
    return 0;
}

/* fill FOLDER MIB: put so many mebibytes there. */
static int fill(int argc, char **argv)
{
    static char block[1 << 20];
    char path[PATH_MAX];
    long written = 0;
    (void)argc;
    for (int file = 0; file < 64 && written < atol(argv[2]) << 20; file++) {
        snprintf(path, sizeof path, "%s/fill-%d", argv[1], file);
        int fd = open(path, O_CREAT | O_WRONLY, 0600);
        ssize_t size;
        while (written < atol(argv[2]) << 20 && (size = write(fd, block, sizeof block)) > 0)
            written += size;
        close(fd);
    }
    printf("wrote %ld\n", written);
    return 0;
}

/* inodes FOLDER N: so many empty files. */
static int inodes(int argc, char **argv)
{
    char path[PATH_MAX];
    long made = 0;
    (void)argc;
    for (; made < atol(argv[2]); made++) {
        snprintf(path, sizeof path, "%s/%ld", argv[1], made);
        if (mknod(path, S_IFREG | 0600, 0) != 0)
            break;
    }
    printf("made %ld\n", made);
    return 0;
}

/* processes N: so many at once. */
static int processes(int argc, char **argv)
{
    long alive = 0;
    (void)argc;
    signal(SIGCHLD, SIG_DFL);
    for (int i = 0; i < atoi(argv[1]); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            alarm(10);
            pause();
            _exit(0);
        }
        if (pid < 0)
            break;
        alive++;
    }
    printf("alive %ld\n", alive);
    return 0;
}

/* memory CHILDREN MIB: so much in each of some processes. */
static int memory(int argc, char **argv)
{
    int pipes[2];
    long held = 0;
    char byte;
    (void)argc;
    if (pipe(pipes) != 0)
        return 1;
    for (int i = 0; i < atoi(argv[1]); i++)
        if (fork() == 0) {
            size_t size = (size_t)atol(argv[2]) << 20;
            char *block = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
            if (block == MAP_FAILED)
                _exit(1);
            for (size_t at = 0; at < size; at += 4096)
                block[at] = 1;
            if (write(pipes[1], "x", 1) == 1)
                sleep(3);
            _exit(0);
        }
    close(pipes[1]);
    while (held < atoi(argv[1]) && read(pipes[0], &byte, 1) == 1)
        held++;
    printf("holding %ld MiB\n", held * atol(argv[2]));
    return 0;
}

/* memfds MIB: memory that is a file without a place. */
static int memfds(int argc, char **argv)
{
    static char block[1 << 20];
    long written = 0;
    (void)argc;
    while (written < atol(argv[1]) << 20) {
        int fd = memfd_create("hog", 0);
        ssize_t size = 0;
        for (int i = 0; i < 64 && (size = write(fd, block, sizeof block)) > 0; i++)
            written += size;
        if (fd < 0 || size <= 0)
            break;
    }
    printf("holding %ld MiB\n", written >> 20);
    return 0;
}

/* Say what is held, and hold it a moment. */
static int hold(long held, char **argv)
{
    printf("held %ld\n", held);
    fflush(stdout);
    close(open(argv[1], O_CREAT | O_WRONLY, 0600));
    for (int i = 0; i < 2000 && !exists(argv[2]); i++)
        nap(5);
    return 0;
}

/* inotify READY GO: take all that the user has, and hold it a moment. */
static int watchers(int argc, char **argv)
{
    long held = 0;
    (void)argc;
    while (held < 1000 && inotify_init1(0) >= 0)
        held++;
    return hold(held, argv);
}

static int watcher;
static long watched;

static int watch_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    if (inotify_add_watch(watcher, path, IN_OPEN) < 0)
        return errno == ENOSPC;
    watched++;
    return 0;
}

/* watches READY GO: look at every file there is, by each instance there is. */
static int watches(int argc, char **argv)
{
    (void)argc;
    while ((watcher = inotify_init1(0)) >= 0)
        if (nftw("/usr", watch_one, 32, FTW_PHYS) != 0)
            break;
    return hold(watched, argv);
}

/* signals READY GO: queue as many signals as the user may have queued. */
static int signals(int argc, char **argv)
{
    sigset_t set;
    long held = 0;
    (void)argc;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    setrlimit(RLIMIT_SIGPENDING, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    while (held < 10000000 && sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0)
        held++;
    return hold(held, argv);
}

/* inflight READY GO: send descriptors that nobody takes. */
static int in_flight(int argc, char **argv)
{
    long held = 0;
    int ends[2], some[200] = {0};
    char room[CMSG_SPACE(sizeof some)] = {0};
    struct iovec byte = {"x", 1};
    struct msghdr message = {.msg_iov = &byte, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    (void)argc;
    *rights = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof some), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
    memcpy(CMSG_DATA(rights), some, sizeof some);
    while (held < 4000 && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0)
        while (held < 4000 && sendmsg(ends[0], &message, MSG_DONTWAIT) == 1)
            held += 200;
    return hold(held, argv);
}

/* bigfile PATH MIB: more in one file than is allowed. */
static int bigfile(int argc, char **argv)
{
    off_t size = (off_t)atol(argv[2]) << 20;
    int fd = open(argv[1], O_CREAT | O_RDWR, 0600);
    (void)argc;
    signal(SIGXFSZ, SIG_IGN);
    TRY("raise", setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}));
    TRY("truncate", ftruncate(fd, size));
    TRY("fallocate", fallocate(fd, 0, 0, size));
    TRY("pwrite", pwrite(fd, "x", 1, size));
    return 0;
}

/* first: be served before everybody else. */
static int first(int argc, char **argv)
{
    struct sched_param param = {1};
    struct { uint32_t size, policy; uint64_t flags; int32_t nice; uint32_t priority; uint64_t runtime, deadline, period; }
        deadline = {48, 6, 0, 0, 0, 10000000, 30000000, 30000000};
    (void)argc, (void)argv;
    TRY("fifo", sched_setscheduler(0, SCHED_FIFO, &param));
    TRY("round robin", sched_setscheduler(0, SCHED_RR, &param));
    TRY("deadline", syscall(SYS_sched_setattr, 0, &deadline, 0));
    TRY("nice", setpriority(PRIO_PROCESS, 0, -5));
    TRY("ioprio", syscall(SYS_ioprio_set, 1, 0, 1 << 13));
    int fd = open("/proc/self/oom_score_adj", O_WRONLY);
    TRY("never killed", fd < 0 ? -1 : write(fd, "-1000", 5));
    return 0;
}

/* flood FD MIB: as much as it takes. */
static int flood(int argc, char **argv)
{
    static char block[1 << 16];
    long left = atol(argv[2]) << 20;
    (void)argc;
    memset(block, 'f', sizeof block);
    while (left > 0) {
        ssize_t size = write(atoi(argv[1]), block, sizeof block);
        if (size <= 0)
            break;
        left -= size;
    }
    return left > 0;
}

/* pipes N: buffers in the kernel. */
static int pipes(int argc, char **argv)
{
    static char block[1 << 16];
    long held = 0;
    (void)argc;
    for (int i = 0; i < atoi(argv[1]); i++) {
        int ends[2];
        if (pipe2(ends, O_NONBLOCK) != 0)
            break;
        fcntl(ends[0], F_SETPIPE_SZ, 1 << 20);
        ssize_t size = write(ends[1], block, sizeof block);
        held += size > 0 ? size : 0;
    }
    printf("held %ld\n", held);
    return 0;
}

const struct command RESOURCES[] = {
    {"fds", fds}, {"fill", fill}, {"inodes", inodes}, {"processes", processes}, {"memory", memory},
    {"memfds", memfds}, {"inotify", watchers}, {"bigfile", bigfile}, {"first", first}, {"flood", flood},
    {"pipes", pipes}, {"watches", watches}, {"signals", signals}, {"inflight", in_flight},
    {NULL, NULL},
};
