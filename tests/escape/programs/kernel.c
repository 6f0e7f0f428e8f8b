/* Attacks on the kernel's surface. */
#include "attack.h"
#include <linux/bpf.h>
#include <linux/capability.h>
#include <linux/perf_event.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <grp.h>
#include <sys/fsuid.h>

#define NS(flag) {#flag, flag}
#ifndef CLONE_NEWTIME
#define CLONE_NEWTIME 0x80
#endif

static const struct { const char *name; int flag; } SPACES[] = {
    NS(CLONE_NEWUSER), NS(CLONE_NEWNS), NS(CLONE_NEWPID), NS(CLONE_NEWNET), NS(CLONE_NEWIPC), NS(CLONE_NEWUTS),
    NS(CLONE_NEWCGROUP), NS(CLONE_NEWTIME),
};

static int leave(void *nothing)
{
    (void)nothing;
    return 0;
}

/* userns: namespaces of one's own, and with them fresh rights. */
static int userns(int argc, char **argv)
{
    static char stack[65536] __attribute__((aligned(16)));
    (void)argc, (void)argv;
    for (size_t i = 0; i < sizeof SPACES / sizeof *SPACES; i++)
        TRY(SPACES[i].name, unshare(SPACES[i].flag));
    TRY("both", unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWPID));
    TRY("clone", clone(leave, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL));
    uint64_t record[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
    long pid = syscall(NR_CLONE3, record, 64);
    if (pid == 0)
        _exit(0);
    TRY("clone3", pid);
    return 0;
}

/* mounts MASKED...: change what is mounted where. */
static int mounts(int argc, char **argv)
{
    uint64_t writable[4] = {0, 1, 0, 0};
    TRY("mount", mount("x", "/tmp", "tmpfs", 0, NULL));
    TRY("bind", mount("/usr", "/tmp", NULL, MS_BIND | MS_REC, NULL));
    TRY("remount /usr", mount("", "/usr", NULL, MS_REMOUNT | MS_BIND, NULL));
    TRY("remount /", mount("", "/", NULL, MS_REMOUNT | MS_BIND, NULL));
    TRY("propagation", mount("", "/", NULL, MS_SHARED | MS_REC, NULL));
    TRY("proc", mount("proc", "/tmp", "proc", 0, NULL));
    TRY("umount /proc", umount2("/proc", MNT_DETACH));
    TRY("umount /tmp", umount2("/tmp", MNT_DETACH));
    for (int i = 1; i < argc; i++)
        TRY("umount mask", umount2(argv[i], MNT_DETACH));
    TRY("fsopen", syscall(NR_FSOPEN, "tmpfs", 0));
    TRY("fspick", syscall(NR_FSPICK, AT_FDCWD, "/usr", 0));
    int tree = syscall(NR_OPEN_TREE, AT_FDCWD, "/", 1);
    TRY("open_tree", tree);
    TRY("move_mount", syscall(NR_MOVE_MOUNT, tree, "", AT_FDCWD, "/tmp", 4));
    TRY("mount_setattr", syscall(NR_MOUNT_SETATTR, AT_FDCWD, "/usr", 0, writable, sizeof writable));
    TRY("pivot_root", syscall(SYS_pivot_root, "/tmp", "/tmp"));
    TRY("chroot", chroot("/tmp"));
    return 0;
}

/* caps: rights that were given up. */
static int caps(int argc, char **argv)
{
    struct __user_cap_header_struct head = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct all[2] = {{~0u, ~0u, ~0u}, {~0u, ~0u, ~0u}}, held[2] = {0};
    gid_t groups[1] = {0};
    (void)argc, (void)argv;
    syscall(SYS_capget, &head, held);
    TRY("held", held[0].permitted | held[0].effective | held[0].inheritable | held[1].permitted ? 0 : -1);
    TRY("bounding", prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN, 0, 0, 0) == 1 ? 0 : -1);
    TRY("capset", syscall(SYS_capset, &head, all));
    TRY("ambient", prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_SYS_ADMIN, 0, 0));
    TRY("no_new_privs off", prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    TRY("no_new_privs", prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ? -1 : 0);
    TRY("setuid", setuid(getuid() == 12345 ? 0 : 12345));
    TRY("setgid", setgid(12345));
    TRY("setgroups", setgroups(1, groups));
    TRY("setfsuid", setfsuid(12345) == 12345 || setfsuid(12345) == 12345 ? 0 : -1);
    return 0;
}

/* suid PROGRAM...: whose rights does a set-uid program run with? */
static int suid(int argc, char **argv)
{
    char path[64], line[256];
    unsigned real = getuid(), first, effective;
    for (int i = 1; i < argc; i++) {
        int pipes[2];
        if (pipe(pipes) != 0)
            return 1;
        pid_t pid = fork();
        if (pid == 0) {
            dup2(pipes[0], 0);
            execl(argv[i], argv[i], "suid-child", (char *)NULL);
            _exit(127);
        }
        nap(80);
        snprintf(path, sizeof path, "/proc/%d/status", pid);
        FILE *status = fopen(path, "r");
        while (status && fgets(line, sizeof line, status))
            if (sscanf(line, "Uid: %u %u", &first, &effective) == 2) {
                if (effective != real)
                    printf("GAINED user %u by %s\n", effective, argv[i]);
                else
                    printf("still user %u in %s\n", effective, argv[i]);
            }
        if (status)
            fclose(status);
        kill(pid, SIGKILL);
        close(pipes[0]);
        close(pipes[1]);
        waitpid(pid, NULL, 0);
    }
    return 0;
}

static int suid_child(int argc, char **argv)
{
    (void)argc, (void)argv;
    nap(500);
    return 0;
}

/* Calls that only the machine's owner makes; their arguments are wrong, so that nothing happens. */
static int privileged(int argc, char **argv)
{
    struct timespec bad = {-1, -1};
    char text[64];
    (void)argc, (void)argv;
    reached("init_module", syscall(SYS_init_module, NULL, 0, ""));
    reached("finit_module", syscall(SYS_finit_module, -1, "", 0));
    reached("delete_module", syscall(SYS_delete_module, "no_such_module", 0));
    reached("swapon", syscall(SYS_swapon, "/no/such", 0));
    reached("swapoff", syscall(SYS_swapoff, "/no/such"));
    reached("acct", syscall(SYS_acct, "/no/such"));
    reached("quotactl", syscall(SYS_quotactl, 0x80000200, "/no/such", 0, NULL) < 0 && errno == ENOENT ? (errno = EPERM, -1) : -1);
    reached("reboot", syscall(SYS_reboot, 0xfee1dead, 672274793, 0x7fffffff, NULL));
    reached("clock_settime", syscall(SYS_clock_settime, 0, &bad));
    reached("syslog", syscall(SYS_syslog, 3, text, sizeof text));
    reached("kexec_load", syscall(SYS_kexec_load, 0, 99999, NULL, ~0UL) < 0 && errno == EINVAL ? (errno = EPERM, -1) : -1);
#ifdef SYS_iopl
    reached("iopl", syscall(SYS_iopl, 3));
    reached("ioperm", syscall(SYS_ioperm, 0x70, 1, 1));
#endif
    return 0;
}

static long traced_child(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        nap(300);
        _exit(0);
    }
    long done = ptrace(PTRACE_SEIZE, pid, NULL, NULL);
    int number = errno;
    kill(pid, SIGKILL);
    errno = number;
    return done;
}

#ifdef __x86_64__
static long old_gate(void)
{
    long result;
    pid_t pid = fork(); /* a filter or a kernel without it may end the process */
    if (pid == 0) {
        __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory", "r8", "r9", "r10", "r11");
        _exit(result > 0 ? 42 : 1);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    errno = EPERM;
    return WIFEXITED(status) && WEXITSTATUS(status) == 42 ? 0 : -1;
}
#endif

/* surface NAME: one call that no tool needs. */
static int surface(int argc, char **argv)
{
    const char *name = argv[1];
    static char record[128];
    (void)argc;
    if (!strcmp(name, "keyctl"))
        reached(name, syscall(SYS_keyctl, 0, -3, 1));
    else if (!strcmp(name, "add_key"))
        reached(name, syscall(SYS_add_key, "user", "attack", "x", 1, -2));
    else if (!strcmp(name, "request_key"))
        reached(name, syscall(SYS_request_key, "user", "no-such-key", NULL, 0));
    else if (!strcmp(name, "userfaultfd"))
        reached(name, syscall(SYS_userfaultfd, 1));
    else if (!strcmp(name, "perf_event_open")) {
        struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .exclude_kernel = 1, .exclude_hv = 1};
        reached(name, syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    } else if (!strcmp(name, "bpf"))
        reached(name, syscall(SYS_bpf, BPF_MAP_CREATE, record, sizeof record));
    else if (!strcmp(name, "ptrace"))
        reached(name, traced_child());
    else if (!strcmp(name, "io_uring"))
        reached(name, syscall(NR_IO_URING_SETUP, 4, record));
    else if (!strcmp(name, "io_setup"))
        reached(name, syscall(SYS_io_setup, 1, record));
    else if (!strcmp(name, "process_vm_readv"))
        reached(name, syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0));
    else if (!strcmp(name, "mount"))
        reached(name, syscall(SYS_mount, "x", "/", "no-such-fs", 0, NULL));
    else if (!strcmp(name, "fsopen"))
        reached(name, syscall(NR_FSOPEN, "no-such-fs", 0));
#ifdef __x86_64__
    else if (!strcmp(name, "x32")) {
        long done = syscall(0x40000000 + SYS_getpid);
        reached(name, done);
    } else if (!strcmp(name, "int80"))
        reached(name, old_gate());
#endif
    else {
        errno = EPERM;
        reached(name, -1);
    }
    return 0;
}

/* key SERIAL: read a key of the server by its number. */
static int key(int argc, char **argv)
{
    char text[256];
    (void)argc;
    for (int spot = -1; spot >= -8; spot--) {
        long serial = syscall(SYS_keyctl, 10, spot, "user", argv[2], 0);
        if (serial > 0)
            printf("GAINED key in keyring %d\n", spot);
    }
    long size = syscall(SYS_keyctl, 11, atoi(argv[1]), text, sizeof text - 1);
    if (size > 0 && size < (long)sizeof text) {
        text[size] = 0;
        printf("GAINED key: %s\n", text);
    }
    TRY("link", syscall(SYS_keyctl, 8, atoi(argv[1]), -3));
    return 0;
}

/* crash: does a picture of the memory stay behind? */
static int crash(int argc, char **argv)
{
    (void)argc, (void)argv;
    setrlimit(RLIMIT_CORE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    abort();
}

const struct command KERNEL[] = {
    {"userns", userns}, {"mounts", mounts}, {"caps", caps}, {"suid", suid}, {"suid-child", suid_child},
    {"privileged", privileged}, {"surface", surface}, {"key", key}, {"crash", crash}, {NULL, NULL},
};
